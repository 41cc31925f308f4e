#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "engine/cuda/runtime/device.h"

namespace rematch::cuda {

/// The process's own pool on device 0; it keeps what was freed. Other users of the device's default
/// pool do not show in its figures.
cudaMemPool_t memory_pool();

/// How many bytes a resource may keep for reuse: all, or with REMATCH_CUDA_KEEP_NO_BLOCKS in the
/// environment none. Under compute-sanitizer a block that is kept hides a use after free;
/// ci/test-gpu sets it. With it nothing that allocates or releases can be captured.
std::int64_t cache_limit();

/// Bytes that memory_pool() holds from the device, in use or not.
std::int64_t pool_reserved();

}  // namespace rematch::cuda
