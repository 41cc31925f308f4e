#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace rematch::cuda::testing {

/// The unit roundoff.
template <typename T>
double unit() {
  return static_cast<double>(std::numeric_limits<T>::epsilon()) / 2;
}

/// Multiples of 1/4 in [-1, 1]: up to 2^20 products of two such values have an exact sum in
/// float32, in every order.
template <typename T>
std::vector<T> quarters(std::int64_t n, std::uint64_t seed) {
  std::vector<T> out;
  std::uint64_t state = seed * 2654435761U + 1;
  for (std::int64_t i = 0; i < n; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    out.push_back(static_cast<T>(static_cast<int>((state >> 33) % 9) - 4) / T(4));
  }
  return out;
}

template <typename T>
std::vector<T> sized(std::int64_t n) {
  return std::vector<T>(static_cast<std::size_t>(n));
}

}  // namespace rematch::cuda::testing
