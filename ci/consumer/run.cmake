# Installs the build into folders of its own, builds consumers against them, runs the consumers.
function(run_for expected)
  execute_process(COMMAND ${ARGN} WORKING_DIRECTORY ${WORK_DIR} RESULT_VARIABLE result
    OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL expected)
    message(FATAL_ERROR "status ${expected} expected, got ${result}: ${ARGN}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()
macro(run)
  run_for(0 ${ARGN})
endmacro()
function(says text)
  string(FIND "${output}" "${text}" found)
  if(found EQUAL -1)
    message(FATAL_ERROR "\"${text}\" expected in\n${output}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK_DIR})
file(MAKE_DIRECTORY ${WORK_DIR})
set(flags -G Ninja -DCMAKE_CXX_COMPILER=${CXX})
if(SANITIZE)
  list(APPEND flags "-DCMAKE_CXX_FLAGS=-fsanitize=${SANITIZE}")
endif()

# A program with a subject of its own has every command for it, and pasted lines name the program.
run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${WORK_DIR}/prefix)
run(${CMAKE_COMMAND} -S ${SOURCE_DIR} -B ${WORK_DIR}/build -DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix ${flags})
run(${CMAKE_COMMAND} --build ${WORK_DIR}/build)
run_for(1 build/consumer check --mix standard --junit report.xml)
says("VIOLATED dropout-masks")
string(REGEX MATCH "again: +([^\n]*)" again "${output}")
separate_arguments(again UNIX_COMMAND "${CMAKE_MATCH_1}")
run_for(1 ${again})
says("VIOLATED      dropout-masks")
list(GET again 2 case)
run(build/consumer show ${case})
run(build/consumer replay --subject engine ${case})
file(READ ${WORK_DIR}/report.xml output)
says("<failure message=")
run(build/consumer check --subject "build/consumer serve --subject engine" --cases 50)
run_for(2 build/consumer check --subject other)
says("no subject is named")
run(build/consumer subjects)
says("mine")

# Libraries alone, without CUDA: found by neither where it is, nor by that it is missing.
run(${CMAKE_COMMAND} --install ${BUILD_DIR} --component development --prefix ${WORK_DIR}/development)
if(EXISTS ${WORK_DIR}/development/bin OR EXISTS ${WORK_DIR}/development/share)
  message(FATAL_ERROR "the component development has programs")
endif()
run(${CMAKE_COMMAND} -S ${SOURCE_DIR} -B ${WORK_DIR}/cpu -DCMAKE_PREFIX_PATH=${WORK_DIR}/development
  -DBACKEND=cpu -DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON
  -DCMAKE_DISABLE_FIND_PACKAGE_cuDNN=ON ${flags})
run(${CMAKE_COMMAND} --build ${WORK_DIR}/cpu)
run(cpu/consumer check --subject engine --cases 50)
run_for(2 cpu/consumer check --device cuda)
run_for(1 ${CMAKE_COMMAND} -S ${SOURCE_DIR} -B ${WORK_DIR}/none
  -DCMAKE_PREFIX_PATH=${WORK_DIR}/development -DBACKEND=cuda
  -DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON ${flags})

# The program needs no more than a wheel holds.
run(${CMAKE_COMMAND} --install ${BUILD_DIR} --component program --prefix ${WORK_DIR}/program)
run(${WORK_DIR}/program/bin/rematch check --cases 50)
if(NOT EXISTS ${WORK_DIR}/program/share/rematch/python/rematch OR EXISTS ${WORK_DIR}/program/include)
  message(FATAL_ERROR "the component program is not the program and what it reads")
endif()
