# Finds cuDNN and defines cuDNN::cudnn. cuDNN_ROOT says where to look first; then beside the CUDA
# toolkit, then in the system's folders.
find_path(cuDNN_INCLUDE_DIR cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS}
  PATHS /usr/local/cuda PATH_SUFFIXES include)
find_library(cuDNN_LIBRARY NAMES cudnn libcudnn.so.9 HINTS ${CUDAToolkit_LIBRARY_DIR}
  PATHS /usr/local/cuda PATH_SUFFIXES lib64 lib)

set(cuDNN_VERSION "")
if(cuDNN_INCLUDE_DIR AND EXISTS "${cuDNN_INCLUDE_DIR}/cudnn_version.h")
  file(STRINGS "${cuDNN_INCLUDE_DIR}/cudnn_version.h" lines
    REGEX "#define CUDNN_(MAJOR|MINOR|PATCHLEVEL) +[0-9]+")
  list(TRANSFORM lines REPLACE "[^0-9]+" "")
  list(JOIN lines "." cuDNN_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(cuDNN
  REQUIRED_VARS cuDNN_LIBRARY cuDNN_INCLUDE_DIR VERSION_VAR cuDNN_VERSION)
mark_as_advanced(cuDNN_INCLUDE_DIR cuDNN_LIBRARY)

if(cuDNN_FOUND AND NOT TARGET cuDNN::cudnn)
  add_library(cuDNN::cudnn UNKNOWN IMPORTED)
  set_target_properties(cuDNN::cudnn PROPERTIES
    IMPORTED_LOCATION "${cuDNN_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${cuDNN_INCLUDE_DIR}")
endif()
