#pragma once

#include <cstdint>

namespace rematch::cuda {

/// gb[m] = the column sums of gy[n,m] on the device, on stream(), in the order and so with the bits
/// of cpu::sum_rows: in T within chunks of 128 rows, in double across. With t = the column's sum of
/// |gy|, within (min(n, 128) u_T + ceil(n / 128) u_64) t of the exact sum.
template <typename T>
void sum_rows(const T* gy, T* gb, std::int64_t n, std::int64_t m);

}  // namespace rematch::cuda
