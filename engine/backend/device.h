#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "engine/memory/resource.h"

namespace rematch {

/// "cpu" or "cuda"; throws std::invalid_argument for another name.
Device device_named(std::string_view name);

/// Memory for a ledger whose tensors lie on `device`. Throws cuda::DeviceError when there is none.
std::unique_ptr<MemoryResource> memory_of(Device device);

/// Host memory for a ledger that tensors of `device` are offloaded to (engine/autograd/offload.h):
/// on the CPU that of any ledger, for CUDA pinned memory, which is copied to and from beside the
/// computation. Throws cuda::DeviceError when there is no such device.
std::unique_ptr<MemoryResource> offload_memory_of(Device device);

/// The device and the libraries that kernels run on, for records of measurements.
std::string device_description(Device device);

}  // namespace rematch
