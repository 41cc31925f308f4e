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

/// What the kernels run on and with which libraries, for records of measurements.
std::string device_description(Device device);

}  // namespace rematch
