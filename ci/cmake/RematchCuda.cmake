# Decides whether the CUDA backend is built: REMATCH_HAS_CUDA. AUTO takes it when nvcc, cuBLASLt and
# cuDNN are all found, and says what is missing when they are not.
set(REMATCH_HAS_CUDA OFF)
if(REMATCH_CUDA STREQUAL "OFF")
  return()
endif()
if(NOT REMATCH_CUDA MATCHES "^(AUTO|ON)$")
  message(FATAL_ERROR "REMATCH_CUDA: AUTO, ON or OFF expected, got ${REMATCH_CUDA}")
endif()

set(missing "")
find_program(REMATCH_NVCC nvcc HINTS ENV CUDACXX ENV CUDA_HOME ENV CUDA_PATH
  PATHS /usr/local/cuda PATH_SUFFIXES bin)
if(REMATCH_NVCC)
  if(NOT CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_COMPILER "${REMATCH_NVCC}")
  endif()
  find_package(CUDAToolkit QUIET)
  # The first that plans for a device that is not there, which tests do.
  find_package(cuDNN 9.8 QUIET)
  if(NOT TARGET CUDA::cublasLt)
    list(APPEND missing "cuBLASLt")
  endif()
  if(NOT cuDNN_FOUND)
    list(APPEND missing "cuDNN 9.8 or newer")
  endif()
else()
  list(APPEND missing "nvcc")
endif()

if(missing)
  list(JOIN missing ", " missing)
  if(REMATCH_CUDA STREQUAL "ON")
    message(FATAL_ERROR "REMATCH_CUDA=ON, but not found: ${missing}; install it, or use OFF")
  endif()
  message(STATUS "CUDA backend: left out, not found: ${missing}")
  return()
endif()

# Set before the language is enabled, which otherwise picks what the compiler likes. "native" would
# not do: it needs a GPU. By default, machine code for Ampere and Hopper, and PTX for what comes after;
# for many cards, machine code for those of Turing to Blackwell that the compiler knows, and PTX of the newest.
option(REMATCH_CUDA_MANY_CARDS "Machine code for all cards since Turing; several times the time to compile" OFF)
if(REMATCH_CUDA_MANY_CARDS AND NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  execute_process(COMMAND "${REMATCH_NVCC}" --list-gpu-arch OUTPUT_VARIABLE known COMMAND_ERROR_IS_FATAL ANY)
  set(cards "")
  foreach(card 75 80 86 89 90 100 120)
    if(known MATCHES "compute_${card}\n")
      list(APPEND cards ${card}-real)
      set(newest ${card})
    endif()
  endforeach()
  set(CMAKE_CUDA_ARCHITECTURES ${cards} ${newest}-virtual)
elseif(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES "80-real;90")
endif()
enable_language(CUDA)
# CMake 3.25 does not know that newer compilers have C++20, and would refuse targets that ask for it.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
# An installed program finds the libraries where they were when it was built.
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)
set(CMAKE_CUDA_FLAGS_RELEASE "-O3 -DNDEBUG")
set(REMATCH_HAS_CUDA ON)
message(STATUS "CUDA backend: nvcc ${CMAKE_CUDA_COMPILER_VERSION}, cuDNN ${cuDNN_VERSION}, "
  "architectures ${CMAKE_CUDA_ARCHITECTURES}")
# Place in which ci/setup puts it, since most compilers come without. Tests read machine code with it.
set(cache "$ENV{XDG_CACHE_HOME}")
if(NOT cache)
  set(cache "$ENV{HOME}/.cache")
endif()
find_program(REMATCH_CUOBJDUMP cuobjdump HINTS "${CUDAToolkit_BIN_DIR}"
  PATHS "${cache}/rematch/cuda-tools/nvidia/cu13/bin")
