#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "engine/cuda/runtime/driver.h"
#include "engine/emulator/stream.h"

// One device, whose name says what it is. The real runtime provides what is not here.

using rematch::emulator::failed;

namespace {

constexpr int kProcessors = 132;

/// REMATCH_EMULATOR_DRIVER: "old" for a driver that CUDA refuses, "none" for a machine without,
/// "older" for one that has no code for the device and cannot translate PTX that is newer.
std::string_view driver() {
  const char* const how = std::getenv("REMATCH_EMULATOR_DRIVER");
  return how == nullptr ? "" : how;
}

}  // namespace

bool rematch::cuda::has_driver() { return driver() != "none"; }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  if (driver() == "old" || driver() == "none") return failed(cudaErrorInsufficientDriver);
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
  properties->multiProcessorCount = kProcessors;
  properties->totalGlobalMem = std::size_t{4} << 30;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int /*device*/) {
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = kProcessors;
      break;
    case cudaDevAttrMpsEnabled:
      *value = 0;
      break;
    // Where this is so, a copy may read its source as late as it likes: the harder case.
    case cudaDevAttrPageableMemoryAccess:
      *value = 1;
      break;
    default:
      return failed(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = driver() == "old" ? 12040 : driver() == "none" ? 0 : CUDART_VERSION;
  return cudaSuccess;
}
