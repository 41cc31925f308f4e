#include "engine/cpu/optimizer.h"

#include <cmath>

namespace rematch::cpu {

double integer_power(double base, std::int64_t exponent) {
  double result = 1.0;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1) result *= base;
    base *= base;
  }
  return result;
}

template <typename T>
void sgd_step(std::int64_t n, T lr, T momentum, bool first, const T* g, T* buf, T* w) {
  if (buf == nullptr) {
    for (std::int64_t i = 0; i < n; ++i) w[i] -= lr * g[i];
    return;
  }
  if (first) {
    for (std::int64_t i = 0; i < n; ++i) buf[i] = g[i];
  } else {
    for (std::int64_t i = 0; i < n; ++i) buf[i] = momentum * buf[i] + g[i];
  }
  for (std::int64_t i = 0; i < n; ++i) w[i] -= lr * buf[i];
}

template <typename T>
void adam_step(std::int64_t n, double lr, double b1, double b2, double eps, std::int64_t t,
               const T* g, T* m, T* v, T* w) {
  const T step = static_cast<T>(lr / (1.0 - integer_power(b1, t)));
  const T root = static_cast<T>(std::sqrt(1.0 - integer_power(b2, t)));
  const T keep_m = static_cast<T>(b1);
  const T take_m = static_cast<T>(1.0 - b1);
  const T keep_v = static_cast<T>(b2);
  const T take_v = static_cast<T>(1.0 - b2);
  const T floor = static_cast<T>(eps);
  for (std::int64_t i = 0; i < n; ++i) {
    m[i] = keep_m * m[i] + take_m * g[i];
    v[i] = keep_v * v[i] + take_v * (g[i] * g[i]);
    w[i] -= step * (m[i] / (std::sqrt(v[i]) / root + floor));
  }
}

#define REMATCH_INSTANTIATE(T)                                                                  \
  template void sgd_step(std::int64_t, T, T, bool, const T*, T*, T*);                           \
  template void adam_step(std::int64_t, double, double, double, double, std::int64_t, const T*, \
                          T*, T*, T*);
REMATCH_INSTANTIATE(float)
REMATCH_INSTANTIATE(double)
#undef REMATCH_INSTANTIATE

}  // namespace rematch::cpu
