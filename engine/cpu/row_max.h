#pragma once

#include <cstdint>
#include <limits>

namespace rematch::cpu {

/// The largest of x[0..n), ignoring NaN; -inf for none.
template <typename T>
T row_max(std::int64_t n, const T* x) {
  constexpr std::int64_t kLanes = 16;
  T lane[kLanes];
  for (T& value : lane) value = -std::numeric_limits<T>::infinity();
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::int64_t l = 0; l < kLanes; ++l) lane[l] = x[i + l] > lane[l] ? x[i + l] : lane[l];
  }
  T top = lane[0];
  for (std::int64_t l = 1; l < kLanes; ++l) top = lane[l] > top ? lane[l] : top;
  for (; i < n; ++i) top = x[i] > top ? x[i] : top;
  return top;
}

}  // namespace rematch::cpu
