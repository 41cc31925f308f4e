option(REMATCH_NATIVE "Use all that this CPU has; bits then hold on this machine only" OFF)
option(REMATCH_WERROR "Warnings are errors" ${PROJECT_IS_TOP_LEVEL})
option(REMATCH_BENCH "Build the benchmarks" ${PROJECT_IS_TOP_LEVEL})
set(REMATCH_CUDA AUTO CACHE STRING "CUDA backend: AUTO, ON or OFF")
set(REMATCH_SANITIZE "" CACHE STRING "Sanitizers, as for -fsanitize")

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# Catch2 and RapidCheck are static libraries; -O3 helps the kernels, -g0 keeps the tree small.
set(CMAKE_CXX_FLAGS_RELEASE "-O3 -DNDEBUG")

# The engine has no CUDA backend yet: the option only says what was found.
if(NOT REMATCH_CUDA STREQUAL "OFF")
  find_program(REMATCH_NVCC nvcc)
  if(REMATCH_NVCC)
    message(STATUS "nvcc found; this version has a CPU engine only")
  elseif(REMATCH_CUDA STREQUAL "ON")
    message(FATAL_ERROR "REMATCH_CUDA=ON, but nvcc was not found; put it on PATH or use OFF")
  endif()
endif()

# Flags that decide bits: one instruction set on every machine, no contraction into fused
# multiply-adds that the source does not ask for.
add_library(rematch_bits INTERFACE)
# errno and traps of floating point are not used: without these flags g++ leaves the activation
# loops scalar. They change no result but the sign of a NaN, which records leave out.
target_compile_options(rematch_bits INTERFACE -ffp-contract=off -fno-math-errno
  -fno-trapping-math)
if(REMATCH_NATIVE)
  target_compile_options(rematch_bits INTERFACE -march=native)
  target_compile_definitions(rematch_bits INTERFACE REMATCH_NATIVE)
else()
  target_compile_options(rematch_bits INTERFACE -march=x86-64-v3 -mtune=generic)
endif()

add_library(rematch_warnings INTERFACE)
target_compile_options(rematch_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual
  # g++ 12 reports overlapping copies in std::string's operator+ that are not there (GCC 105329).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
if(REMATCH_WERROR)
  target_compile_options(rematch_warnings INTERFACE -Werror)
endif()

if(REMATCH_SANITIZE)
  add_compile_options(-fsanitize=${REMATCH_SANITIZE} -fno-sanitize-recover=all
    -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${REMATCH_SANITIZE})
  # g++'s flow analysis sees paths through the sanitizers' checks that cannot be taken.
  target_compile_options(rematch_warnings INTERFACE -Wno-maybe-uninitialized)
endif()
