#include "engine/kernels/optimizer.h"

#include "engine/math/update.h"

namespace rematch::cpu {

namespace {

template <typename T>
void sgd_step(const math::SgdItem<T>& p, T lr, T momentum) {
  if (p.buf == nullptr) {
    for (std::int64_t i = 0; i < p.n; ++i) p.w[i] = math::sgd(p.w[i], p.g[i], lr);
    return;
  }
  for (std::int64_t i = 0; i < p.n; ++i) {
    p.buf[i] = p.first ? p.g[i] : math::sgd_momentum(p.buf[i], p.g[i], momentum);
  }
  for (std::int64_t i = 0; i < p.n; ++i) p.w[i] = math::sgd(p.w[i], p.buf[i], lr);
}

}  // namespace

template <typename T>
void sgd_steps(std::span<const math::SgdItem<T>> items, T lr, T momentum) {
  for (const math::SgdItem<T>& p : items) sgd_step(p, lr, momentum);
}

template <typename T>
void adam_steps(std::span<const math::AdamItem<T>> items, double lr, double b1, double b2,
                double eps) {
  for (const math::AdamItem<T>& p : items) {
    const math::AdamStep<T> step(lr, b1, b2, eps, ++*p.t);
    for (std::int64_t i = 0; i < p.n; ++i) step.apply(p.g[i], p.m[i], p.v[i], p.w[i]);
  }
}

REMATCH_OPTIMIZER_KERNELS(REMATCH_INSTANTIATE);

}  // namespace rematch::cpu
