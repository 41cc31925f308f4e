#pragma once

#include <cuda_runtime_api.h>

#include "engine/cuda/device.h"

namespace rematch::cuda {

/// The process's own pool on device 0; it keeps what was freed. Other users of the device's default
/// pool do not show in its figures.
cudaMemPool_t memory_pool();

/// Bytes that memory_pool() holds from the device, in use or not.
std::int64_t pool_reserved();

}  // namespace rematch::cuda
