#pragma once

#include <cstdint>

namespace rematch::cuda {

/// y[n,c,s] += b[c] on the device, on stream(): one rounding an element, so the bits of any other
/// way to add a bias to a finished sum.
template <typename T>
void add_bias(std::int64_t n, std::int64_t c, std::int64_t s, const T* b, T* y);

/// gb[c] = the sum of gy[n,c,s] over n and s, in batch_norm's order (batch_norm.h): the
/// bits of cpu::conv2d_grad_bias.
template <typename T>
void sum_channels(std::int64_t n, std::int64_t c, std::int64_t s, const T* gy, T* gb);

}  // namespace rematch::cuda
