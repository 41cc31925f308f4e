#include "engine/cpu/optimizer.h"

#include "engine/math/update.h"

namespace rematch::cpu {

double integer_power(double base, std::int64_t exponent) {
  return math::integer_power(base, exponent);
}

template <typename T>
void sgd_step(std::int64_t n, T lr, T momentum, bool first, const T* g, T* buf, T* w) {
  if (buf == nullptr) {
    for (std::int64_t i = 0; i < n; ++i) w[i] = math::sgd(w[i], g[i], lr);
    return;
  }
  if (first) {
    for (std::int64_t i = 0; i < n; ++i) buf[i] = g[i];
  } else {
    for (std::int64_t i = 0; i < n; ++i) buf[i] = math::sgd_momentum(buf[i], g[i], momentum);
  }
  for (std::int64_t i = 0; i < n; ++i) w[i] = math::sgd(w[i], buf[i], lr);
}

template <typename T>
void adam_step(std::int64_t n, double lr, double b1, double b2, double eps, std::int64_t t,
               const T* g, T* m, T* v, T* w) {
  const math::AdamStep<T> step(lr, b1, b2, eps, t);
  for (std::int64_t i = 0; i < n; ++i) step.apply(g[i], m[i], v[i], w[i]);
}

template <typename T>
void sgd_steps(std::span<const math::SgdItem<T>> items, T lr, T momentum) {
  for (const math::SgdItem<T>& p : items) sgd_step(p.n, lr, momentum, p.first, p.g, p.buf, p.w);
}

template <typename T>
void adam_steps(std::span<const math::AdamItem<T>> items, double lr, double b1, double b2,
                double eps) {
  for (const math::AdamItem<T>& p : items) {
    adam_step(p.n, lr, b1, b2, eps, ++*p.t, p.g, p.m, p.v, p.w);
  }
}

#define REMATCH_INSTANTIATE(T)                                                                  \
  template void sgd_step(std::int64_t, T, T, bool, const T*, T*, T*);                           \
  template void adam_step(std::int64_t, double, double, double, double, std::int64_t, const T*, \
                          T*, T*, T*);                                                          \
  template void sgd_steps(std::span<const math::SgdItem<T>>, T, T);                             \
  template void adam_steps(std::span<const math::AdamItem<T>>, double, double, double, double);
REMATCH_INSTANTIATE(float)
REMATCH_INSTANTIATE(double)
#undef REMATCH_INSTANTIATE

}  // namespace rematch::cpu
