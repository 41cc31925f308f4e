#include "engine/backend/device.h"

#include <stdexcept>

#include "engine/build/build_info.h"
#include "engine/cuda/runtime/device.h"
#include "engine/cuda/runtime/offload.h"

namespace rematch {

Device device_named(std::string_view name) {
  for (const Device device : {Device::cpu, Device::cuda}) {
    if (name == to_string(device)) return device;
  }
  throw std::invalid_argument("[device] cpu or cuda expected, got \"" + std::string(name) + "\"");
}

std::unique_ptr<MemoryResource> memory_of(Device device) {
  return device == Device::cuda ? cuda::device_memory() : host_memory();
}

std::unique_ptr<MemoryResource> offload_memory_of(Device device) {
  return device == Device::cuda ? cuda::pinned_memory() : host_memory();
}

std::string device_description(Device device) {
  return device == Device::cuda ? cuda::device_description() : std::string(build_kind());
}

}  // namespace rematch
