#pragma once

#include <cstdint>

namespace rematch::cuda {

/// gb[m] = the column sums of gy[n,m] on the device, on stream(): chunks of 128 rows, ascending in
/// T in a chunk, the chunks' sums ascending in double. Up to 128 rows that is cpu::sum_rows' order,
/// and its bits. Beyond, with t = the column's sum of |gy|, within
/// (128 u_T + ceil(n / 128) u_64) t of the exact sum, and within ((n + 128) u_T + ceil(n / 128)
/// u_64) t of the CPU's.
template <typename T>
void sum_rows(const T* gy, T* gb, std::int64_t n, std::int64_t m);

}  // namespace rematch::cuda
