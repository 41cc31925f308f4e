option(REMATCH_NATIVE "Use all that this CPU has; bits then hold on this machine only" OFF)
option(REMATCH_WERROR "Warnings are errors" ${PROJECT_IS_TOP_LEVEL})
option(REMATCH_BENCH "Build the benchmarks" ${PROJECT_IS_TOP_LEVEL})
option(REMATCH_STATIC "Programs that need no library, for machines without a compiler" OFF)
set(REMATCH_CUDA AUTO CACHE STRING "CUDA backend: AUTO, ON or OFF")
option(REMATCH_EMULATED_DEVICE "Test the CUDA backend on a device that is emulated on the CPU" ON)
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

include(RematchCuda)

# Flags that decide bits: one instruction set on every machine, no contraction into fused
# multiply-adds that the source does not ask for.
add_library(rematch_bits INTERFACE)
# errno and traps of floating point are not used: without these flags g++ leaves the activation
# loops scalar. They change no result but the sign of a NaN, which records leave out.
set(bits -ffp-contract=off -fno-math-errno -fno-trapping-math)
if(REMATCH_NATIVE)
  list(APPEND bits -march=native)
  target_compile_definitions(rematch_bits INTERFACE REMATCH_NATIVE)
else()
  list(APPEND bits -march=x86-64-v3 -mtune=generic)
endif()
# For those who write down how they were built.
string(REPLACE ";" " " REMATCH_BITS "${bits}")
# In a .cu file the host's part has the same flags, for functions of headers shared with .cpp files
# must not depend on whose copy the linker keeps; -fmad=false is their counterpart for the device.
string(REPLACE ";" "," bits_for_nvcc "${bits}")
target_compile_options(rematch_bits INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:${bits}>"
  "$<$<COMPILE_LANGUAGE:CUDA>:-fmad=false;-Xcompiler=${bits_for_nvcc}>")

add_library(rematch_warnings INTERFACE)
set(warnings -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual)
string(REPLACE ";" "," warnings_for_nvcc "${warnings}")
target_compile_options(rematch_warnings INTERFACE
  # nvcc's own code is not pedantic.
  "$<$<COMPILE_LANGUAGE:CXX>:${warnings};-Wpedantic>"
  "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=${warnings_for_nvcc}>"
  # g++ 12 reports overlapping copies in std::string's operator+ that are not there (GCC 105329).
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict>)
if(REMATCH_WERROR)
  target_compile_options(rematch_warnings INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:-Werror>"
    "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings;-Xcompiler=-Werror>")
endif()

if(REMATCH_SANITIZE)
  add_compile_options(-fsanitize=${REMATCH_SANITIZE} -fno-sanitize-recover=all
    -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${REMATCH_SANITIZE})
  # g++'s flow analysis sees paths through the sanitizers' checks that cannot be taken.
  target_compile_options(rematch_warnings INTERFACE -Wno-maybe-uninitialized)
endif()
