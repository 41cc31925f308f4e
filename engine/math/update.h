#pragma once

// One weight's step of each optimizer, for every backend.

#include <cmath>
#include <cstdint>

#include "engine/math/host_device.h"

namespace rematch::math {

/// base^exponent for exponent >= 0 by repeated squaring, multiplications only.
REMATCH_HD constexpr double integer_power(double base, std::int64_t exponent) {
  double result = 1.0;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1) result *= base;
    base *= base;
  }
  return result;
}

template <typename T>
REMATCH_HD inline T sgd(T w, T direction, T lr) {
  return w - lr * direction;
}
template <typename T>
REMATCH_HD inline T sgd_momentum(T buffer, T g, T momentum) {
  return momentum * buffer + g;
}

/// A parameter w of `n` elements with its gradient g, in one step of SGD. A null `buf`: there is no
/// momentum; `first`: this step writes it.
template <typename T>
struct SgdItem {
  std::int64_t n;
  bool first;
  const T* g;
  T* buf;
  T* w;
};

/// The same for Adam: moments m and v, and the number of steps so far, which the step increments.
template <typename T>
struct AdamItem {
  std::int64_t n;
  std::int64_t* t;
  const T* g;
  T* m;
  T* v;
  T* w;
};

/// Adam's constants at one step, rounded to the weights' type once.
template <typename T>
struct AdamStep {
  T step;
  T root;
  T keep_m;
  T take_m;
  T keep_v;
  T take_v;
  T floor;

  REMATCH_HD AdamStep(double lr, double b1, double b2, double eps, std::int64_t t)
      : step(static_cast<T>(lr / (1.0 - integer_power(b1, t)))),
        root(static_cast<T>(std::sqrt(1.0 - integer_power(b2, t)))),
        keep_m(static_cast<T>(b1)),
        take_m(static_cast<T>(1.0 - b1)),
        keep_v(static_cast<T>(b2)),
        take_v(static_cast<T>(1.0 - b2)),
        floor(static_cast<T>(eps)) {}

  REMATCH_HD void apply(T g, T& m, T& v, T& w) const {
    m = keep_m * m + take_m * g;
    v = keep_v * v + take_v * (g * g);
    w -= step * (m / (std::sqrt(v) / root + floor));
  }
};

}  // namespace rematch::math
