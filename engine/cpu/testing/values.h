#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "engine/random/philox.h"

namespace rematch::cpu::testing {

/// n values in (-1, 1), the same for the same seed.
template <typename T>
std::vector<T> values(std::int64_t n, std::uint64_t seed) {
  std::vector<T> out;
  const PhiloxStream stream{seed, 0};
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t word = stream.word(static_cast<std::uint64_t>(i));
    out.push_back(static_cast<T>(2.0 * uniform_double(word) - 1.0));
  }
  return out;
}

/// The largest difference; infinite if sizes differ or either holds a NaN.
template <typename A, typename B>
double distance(const std::vector<A>& a, const std::vector<B>& b) {
  double worst = a.size() == b.size() ? 0.0 : std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double d = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    worst = d <= worst ? worst : std::isnan(d) ? std::numeric_limits<double>::infinity() : d;
  }
  return worst;
}

template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

/// A bound on the error of a sum of `terms` products of values in (-1, 1) added in any order
/// (Higham, Accuracy and Stability of Numerical Algorithms, 4.2: below terms * u times the sum of
/// magnitudes, itself at most terms), with two more roundings for a bias and the reference.
template <typename T>
double product_bound(std::int64_t terms) {
  const auto n = static_cast<double>(terms + 2);
  return n * n * static_cast<double>(std::numeric_limits<T>::epsilon()) / 2;
}

}  // namespace rematch::cpu::testing
