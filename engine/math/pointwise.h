#pragma once

// The formula of one element of each activation and loss, for every backend: one source, so the
// same bits. Arguments come by value, so that host loops load both sides of a choice and vectorise.

#include <cmath>
#include <cstdint>

#include "engine/math/elementary.h"
#include "engine/math/host_device.h"

namespace rematch::math {

/// max(x, 0); NaN stays NaN and -0 becomes +0.
template <typename T>
REMATCH_HD inline T relu(T x) {
  return x <= T(0) ? T(0) : x;
}

/// gy where the output y is positive, else +0.
template <typename T>
REMATCH_HD inline T relu_gradient(T gy, T y) {
  return y > T(0) ? gy : T(0);
}

/// x where positive, else slope * x.
template <typename T>
REMATCH_HD inline T leaky_relu(T x, T slope) {
  const T scaled = slope * x;
  return x > T(0) ? x : scaled;
}

/// gy where the input x is positive, else slope * gy.
template <typename T>
REMATCH_HD inline T leaky_relu_gradient(T gy, T x, T slope) {
  const T scaled = slope * gy;
  return x > T(0) ? gy : scaled;
}

/// From the input x.
template <typename T>
REMATCH_HD inline T gelu_gradient(T gy, T x) {
  return gy * gelu_derivative(x);
}

/// From the input x.
template <typename T>
REMATCH_HD inline T silu_gradient(T gy, T x) {
  return gy * silu_derivative(x);
}

/// From the output y.
template <typename T>
REMATCH_HD inline T tanh_gradient(T gy, T y) {
  return gy * std::fma(-y, y, T(1));
}

/// From the output y.
template <typename T>
REMATCH_HD inline T sigmoid_gradient(T gy, T y) {
  return gy * (y * (T(1) - y));
}

/// From the output y and dot = sum(gy * y) over the row.
template <typename T>
REMATCH_HD inline T softmax_gradient(T gy, T y, T dot) {
  return y * (gy - dot);
}

template <typename T>
REMATCH_HD inline T squared_difference(T a, T b) {
  const T d = a - b;
  return d * d;
}

/// The factor of mse_gradient: g * 2 / n.
template <typename T>
REMATCH_HD inline T mse_factor(T g, std::int64_t n) {
  return g * (T(2) / static_cast<T>(n));
}
template <typename T>
REMATCH_HD inline T mse_gradient(T factor, T x, T target) {
  return factor * (x - target);
}

/// The factor of cross_entropy_gradient: g / rows.
template <typename T>
REMATCH_HD inline T cross_entropy_factor(T g, std::int64_t rows) {
  return g / static_cast<T>(rows);
}
/// One element of a row; `hit` in the column of the row's target.
template <typename T>
REMATCH_HD inline T cross_entropy_gradient(T factor, T log_prob, bool hit) {
  const T p = exp(log_prob);
  return factor * (hit ? p - T(1) : p);
}

}  // namespace rematch::math
