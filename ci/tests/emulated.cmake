# The tests of the GPU and the programs once more, on the emulated device (engine/emulator).

add_executable(emulated_rematch ${PROJECT_SOURCE_DIR}/properties/cli/main.cpp)
rematch_emulated(emulated_rematch)
target_link_libraries(emulated_rematch PRIVATE rematch_cli)

if(TARGET rematch-bench)
  rematch_find(benchmark)
  set(program "${PROJECT_SOURCE_DIR}/bench/steps/program")
  add_executable(emulated_rematch-bench ${program}/main.cpp ${program}/device_clock_cuda.cpp)
  rematch_emulated(emulated_rematch-bench)
  target_link_libraries(emulated_rematch-bench PRIVATE rematch_fingerprint rematch_steps CUDA::cudart
    benchmark::benchmark nlohmann_json::nlohmann_json)
  # Times do not matter here; a step that cannot be captured would be skipped.
  rematch_test("emulated: a step is measured eager and captured, under names that pair"
    COMMAND emulated_rematch-bench --device cuda --benchmark_filter=^tiny/ --benchmark_min_time=0.001
    PROPERTIES LABELS emulated TIMEOUT 300 ENVIRONMENT REMATCH_EMULATOR_LOCK=off
      PASS_REGULAR_EXPRESSION "tiny/plain/float32/cuda/[^\n]*\n?.*tiny/plain/float32/cuda-captured/[^\n]*peak_bytes"
      FAIL_REGULAR_EXPRESSION "cannot be captured;ERROR")
endif()

# emulated_tests(TARGET PREFIX SPEC [ENVIRONMENT...]): each test case of a program is a test.
function(emulated_tests target prefix spec)
  string(MAKE_C_IDENTIFIER "${target} ${prefix} ${spec}" list)
  catch_discover_tests(${target} TEST_SPEC "${spec}" TEST_PREFIX "${prefix}: " TEST_LIST ${list}
    PROPERTIES LABELS emulated SKIP_RETURN_CODE 4 TIMEOUT 300 ENVIRONMENT "${ARGN}")
endfunction()

add_executable(emulated_gpu_tests $<TARGET_OBJECTS:gpu_test_objects>)
rematch_emulated(emulated_gpu_tests)
target_link_libraries(emulated_gpu_tests PRIVATE rematch::engine CUDA::cudart Catch2::Catch2WithMain)

# Counts what a hunt asks of the device, without the lock: it is a separate hunt.
add_executable(emulated_device_tests ${PROJECT_SOURCE_DIR}/properties/subjects/device_work_test.cpp)
target_compile_options(emulated_device_tests PRIVATE
  $<$<CONFIG:Release,Mutants>:${REMATCH_TEST_FLAGS}>)
rematch_emulated(emulated_device_tests)
target_link_libraries(emulated_device_tests PRIVATE rematch_cli Catch2::Catch2WithMain)
emulated_tests(emulated_device_tests "emulated" "" REMATCH_EMULATOR_LOCK=off)

# The programs as users meet them where the device is lost, or cannot be used.
add_executable(emulated_program_tests lost_device_test.cpp)
target_compile_definitions(emulated_program_tests PRIVATE
  REMATCH_PROGRAM="$<TARGET_FILE:emulated_rematch>" REMATCH_GPU_TESTS="$<TARGET_FILE:emulated_gpu_tests>"
  REMATCH_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
target_compile_options(emulated_program_tests PRIVATE
  $<$<CONFIG:Release,Mutants>:${REMATCH_TEST_FLAGS}>)
target_precompile_headers(emulated_program_tests PRIVATE <catch2/catch_test_macros.hpp>)
target_link_libraries(emulated_program_tests PRIVATE rematch_test_shell rematch_bits rematch_warnings
  Catch2::Catch2WithMain nlohmann_json::nlohmann_json)
add_dependencies(emulated_program_tests emulated_rematch emulated_gpu_tests)
emulated_tests(emulated_program_tests "emulated" "" REMATCH_EMULATOR_LOCK=off)

# A test each, as those of a real device are; the ones that need no device, or work that takes a while, run there alone.
emulated_tests(emulated_gpu_tests "emulated" "[gpu]~[long]")
# Tests that could depend on an order, in another order.
emulated_tests(emulated_gpu_tests "emulated, copies early" "[offload]~[long]" REMATCH_EMULATOR_STREAMS=mixed)
emulated_tests(emulated_gpu_tests "emulated, last threads first" "[sums]" REMATCH_EMULATOR_ORDER=descending)
# A device that is lost stays so until the process ends.
emulated_tests(emulated_gpu_tests "emulated" "[.lost]" REMATCH_EMULATOR_LOSE_IN=math::relu<)
# Ranges, as a profiler gets them.
add_library(nvtx_recorder MODULE nvtx/recorder.cpp)
target_link_libraries(nvtx_recorder PRIVATE rematch_bits rematch_warnings CUDA::cudart)
set(seen "nvtx: 0 Linear\n" "nvtx: 1 LayerNorm\n" "nvtx: backward\n" "nvtx:   SumBackward\n"
  "nvtx:     recomputation\n" "nvtx:       0 Linear\n" "nvtx: 0 ranges left open")
# The output of the tests comes between.
list(JOIN seen ".*" seen)
rematch_test("emulated: a profiler sees layers, recomputations and nodes as nested ranges"
  COMMAND emulated_gpu_tests "[nvtx]"
  PROPERTIES LABELS emulated TIMEOUT 60 PASS_REGULAR_EXPRESSION "${seen}"
    ENVIRONMENT "REMATCH_EMULATOR_LOCK=off;NVTX_INJECTION64_PATH=$<TARGET_FILE:nvtx_recorder>")
# Runs them as ci/test-gpu does under compute-sanitizer.
rematch_test("emulated: tests of the GPU pass where no block is kept for reuse"
  COMMAND emulated_gpu_tests "[gpu]~[sums]~[long]"
  PROPERTIES LABELS emulated COST 500 TIMEOUT 1200
    ENVIRONMENT "REMATCH_CUDA_KEEP_NO_BLOCKS=1;REMATCH_EMULATOR_LOCK=off")
foreach(turn "ascending late on" "descending mixed off")
  separate_arguments(turn)
  list(POP_FRONT turn order streams lock)
  rematch_test("emulated: every law holds for the wide mix, threads ${order}, streams ${streams}"
    COMMAND emulated_rematch check --device cuda --mix wide --cases 200
    PROPERTIES LABELS emulated TIMEOUT 300 ENVIRONMENT "REMATCH_EMULATOR_ORDER=${order};\
REMATCH_EMULATOR_STREAMS=${streams};REMATCH_EMULATOR_LOCK=${lock}")
endforeach()

rematch_test("emulated: a device draws, counts and orders what the CPU does, by the hash of a hunt"
  COMMAND ${PROJECT_SOURCE_DIR}/ci/test-gpu --hunts $<TARGET_FILE:emulated_rematch> 40
  PROPERTIES LABELS emulated TIMEOUT 300 ENVIRONMENT REMATCH_EMULATOR_LOCK=off)

# PTX of nvcc, a second opinion on what the emulated device runs. Tests that take long, and launch what others do, are left out.
rematch_test("emulated: the PTX of the kernels gives the emulated device's bits, and does nothing that CUDA leaves undefined"
  COMMAND ${PROJECT_SOURCE_DIR}/ci/maintain/ptx --build ${PROJECT_BINARY_DIR} --most 1 --tests
    "[gpu]~[long]~\"a convolution*\"~\"convolutions on*\"~\"threads with*\"~\"a write in place*\"~\"what was copied out*\"~\"a kernel that works in blocks*\"~\"activations*- double\"~\"softmax*- double\"~\"cross entropy*- float\"~\"mse*- double\"~\"dropout*- double\"~\"element-wise*- double\"~\"layer norm*- double\"~\"a linear layer on the engine*- double\""
  PROPERTIES LABELS emulated COST 600 TIMEOUT 900)
