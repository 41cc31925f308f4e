# Installs the build into a folder of its own, builds a consumer against it, runs the consumer.
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output
    ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${ARGN}\n${output}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK_DIR})
run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${WORK_DIR}/prefix)
set(flags "")
if(SANITIZE)
  set(flags "-DCMAKE_CXX_FLAGS=-fsanitize=${SANITIZE}")
endif()
run(${CMAKE_COMMAND} -S ${SOURCE_DIR} -B ${WORK_DIR}/build -G Ninja
  -DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix -DCMAKE_CXX_COMPILER=${CXX} ${flags})
run(${CMAKE_COMMAND} --build ${WORK_DIR}/build)
run(${WORK_DIR}/build/consumer)

# What a wheel holds is enough for the program.
run(${CMAKE_COMMAND} --install ${BUILD_DIR} --component program --prefix ${WORK_DIR}/program)
run(${WORK_DIR}/program/bin/rematch check --cases 50)
if(NOT EXISTS ${WORK_DIR}/program/share/rematch/python/rematch OR EXISTS ${WORK_DIR}/program/include)
  message(FATAL_ERROR "the component is not the program and what it reads")
endif()
