#pragma once

#include <cstdint>

namespace rematch::cuda {

// engine/cpu/concat.h on the device: pointers are the device's, work goes to stream().

/// out[outer, inner_a + inner_b] = a[outer, inner_a] beside b[outer, inner_b].
template <typename T>
void concat2(std::int64_t outer, std::int64_t inner_a, std::int64_t inner_b, const T* a, const T* b,
             T* out);

/// The inverse: a = the first inner_a columns of x, b = the rest. Either output may be null.
template <typename T>
void split2(std::int64_t outer, std::int64_t inner_a, std::int64_t inner_b, const T* x, T* a, T* b);

}  // namespace rematch::cuda
