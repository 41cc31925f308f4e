#pragma once

// A residual branch that whole samples skip, element by element, for every backend: one source, so
// the same bits.

#include <cmath>
#include <cstdint>

#include "engine/math/host_device.h"

namespace rematch::math {

/// `samples` of so many rows each, and the branch's weight[features, features].
struct DepthShape {
  std::int64_t samples = 1;
  std::int64_t rows_of_sample = 1;
  std::int64_t features = 1;

  REMATCH_HD constexpr std::int64_t rows() const { return samples * rows_of_sample; }
};

/// The factor of sample n where samples decide by their values: 0, it exits, if its first value is
/// positive, and 1 if it is not, or NaN.
template <typename T>
REMATCH_HD inline T exit_factor(const DepthShape& s, std::int64_t n, const T* x) {
  const std::int64_t values = s.rows_of_sample * s.features;
  return values > 0 && x[n * values] > 0 ? T(0) : T(1);
}

/// The factor of a row's branch; 0: its sample skips it. Null factors are all 1.
template <typename T>
REMATCH_HD inline T depth_factor(const DepthShape& s, std::int64_t row, const T* factors) {
  return factors == nullptr ? T(1) : factors[row / s.rows_of_sample];
}

/// Feature f of a row's result. A sample that skips the branch reads no weight, so that a NaN there
/// does not reach it.
template <typename T>
REMATCH_HD inline T depth_forward(const DepthShape& s, std::int64_t row, std::int64_t f, const T* x,
                                  const T* weight, const T* factors) {
  const T* const from = x + row * s.features;
  const T factor = depth_factor(s, row, factors);
  if (factor == 0) return from[f];
  const T* const of = weight + f * s.features;
  T sum = 0;
  REMATCH_UNROLL
  for (std::int64_t i = 0; i < s.features; ++i) sum = std::fma(from[i], of[i], sum);
  return std::fma(factor, sum, from[f]);
}

/// Feature f of a row's gradient.
template <typename T>
REMATCH_HD inline T depth_grad_input(const DepthShape& s, std::int64_t row, std::int64_t f,
                                     const T* gy, const T* weight, const T* factors) {
  const T* const from = gy + row * s.features;
  const T factor = depth_factor(s, row, factors);
  if (factor == 0) return from[f];
  T sum = 0;
  REMATCH_UNROLL
  for (std::int64_t i = 0; i < s.features; ++i) {
    sum = std::fma(from[i], weight[i * s.features + f], sum);
  }
  return std::fma(factor, sum, from[f]);
}

/// Element [g, f] of the gradient of the weight: a sum over the rows that took the branch.
template <typename T>
REMATCH_HD inline T depth_grad_weight(const DepthShape& s, std::int64_t g, std::int64_t f,
                                      const T* gy, const T* x, const T* factors) {
  T sum = 0;
  for (std::int64_t row = 0; row < s.rows(); ++row) {
    const T factor = depth_factor(s, row, factors);
    if (factor == 0) continue;
    sum = std::fma(factor * gy[row * s.features + g], x[row * s.features + f], sum);
  }
  return sum;
}

}  // namespace rematch::math
