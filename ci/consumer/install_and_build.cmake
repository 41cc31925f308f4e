# Installs the build tree `build` below itself, then builds and runs this folder's project against it.
cmake_minimum_required(VERSION 3.25)

set(work "${build}/consumer")
file(REMOVE_RECURSE "${work}")

function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

run("${CMAKE_COMMAND}" --install "${build}" --config "${config}" --prefix "${work}/prefix")
run("${CMAKE_COMMAND}" -S "${CMAKE_CURRENT_LIST_DIR}" -B "${work}/build" -G "${generator}"
  "-DCMAKE_PREFIX_PATH=${work}/prefix"
  "-DCMAKE_BUILD_TYPE=${config}"
  "-DCMAKE_CXX_COMPILER=${compiler}"
  "-DCMAKE_CXX_FLAGS=${flags}"
  # Nothing but the prefix above may answer, or another installed copy could pass in its place.
  -DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF)
run("${CMAKE_COMMAND}" --build "${work}/build" --config "${config}")
run("${work}/build/consumer")
