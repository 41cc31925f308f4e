#pragma once

#include <cstdint>

namespace rematch::cuda {

// engine/cpu/kv_cache.h on the device: pointers are the device's, and work goes to stream().

/// One launch.
template <typename T>
void prepend(std::int64_t outer, std::int64_t inner_a, std::int64_t inner_b, const T* a, const T* b,
             T* out);

}  // namespace rematch::cuda
