#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

#include "engine/random/philox.h"
#include "engine/tensor/tensor.h"

namespace rematch::testing {

/// A leaf with these values.
inline Tensor tensor(std::initializer_list<double> values, const Shape& shape,
                     DType dtype = DType::float64) {
  return Tensor::from(std::span(values.begin(), values.size()), shape, dtype);
}

/// A leaf with these values that requires grad.
inline Tensor variable(std::initializer_list<double> values, const Shape& shape,
                       DType dtype = DType::float64) {
  return tensor(values, shape, dtype).set_requires_grad(true);
}

/// 2 x 2 values that require grad.
inline Tensor x22() { return variable({1, -2, 3, -4}, {2, 2}); }

/// Multiples of 2^-10 with magnitude in [1/8, 3/2), a function of `seed` alone: exact in float32,
/// and no element is nearer to 0 than 1/8.
inline Tensor values_off_zero(const Shape& shape, std::uint64_t seed,
                              DType dtype = DType::float64) {
  const PhiloxStream stream{seed, 0};
  std::vector<double> values(static_cast<std::size_t>(shape.elements()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint32_t word = stream.word(i);
    const double magnitude = (128.0 + static_cast<double>((word >> 1) % 1408)) / 1024.0;
    values[i] = (word & 1U) != 0 ? magnitude : -magnitude;
  }
  return Tensor::from(values, shape, dtype);
}

/// A leaf of these values that requires grad.
inline Tensor leaf(const Shape& shape, std::uint64_t seed, DType dtype = DType::float32) {
  return values_off_zero(shape, seed, dtype).set_requires_grad(true);
}

/// Whether no element is 0, as a test wants that compares gradients: what vanished on its way is
/// alike in every run.
inline bool all_nonzero(const Tensor& t) {
  for (const double v : t.to_vector()) {
    if (v == 0) return false;
  }
  return true;
}

/// Whether two tensors have the same shape, dtype and bytes: tells -0 from +0 and one NaN from
/// another. Two undefined tensors are alike.
inline bool same_bits(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         (a.bytes() == 0 ||
          std::memcmp(a.raw(), b.raw(), static_cast<std::size_t>(a.bytes())) == 0);
}

}  // namespace rematch::testing
