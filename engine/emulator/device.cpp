#include <cuda_runtime_api.h>

#include <cstdio>

#include "engine/emulator/stream.h"

// One device, whose name says what it is. What is not here comes from the real runtime.

using rematch::emulator::failed;

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  return device == 0 ? cudaSuccess : failed(cudaErrorInvalidDevice);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int /*device*/) {
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "%s", "emulated on the CPU: no GPU");
  properties->major = 9;
  properties->multiProcessorCount = 132;
  properties->totalGlobalMem = std::size_t{4} << 30;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int /*device*/) {
  // Where this is so, a copy may read its source as late as it likes: the harder case.
  if (attribute != cudaDevAttrPageableMemoryAccess) return failed(cudaErrorInvalidValue);
  *value = 1;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
