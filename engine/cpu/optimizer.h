#pragma once

#include <cstdint>
#include <span>

#include "engine/math/update.h"

namespace rematch::cpu {

/// torch.optim.SGD (dampening 0, no Nesterov, no weight decay): buf = first ? g : momentum * buf +
/// g; w -= lr * buf. With a null `buf` there is no momentum: w -= lr * g.
template <typename T>
void sgd_step(std::int64_t n, T lr, T momentum, bool first, const T* g, T* buf, T* w);

/// torch.optim.Adam (Kingma and Ba, 2015; no weight decay) at step t >= 1: m = b1 m + (1 - b1) g,
/// v = b2 v + (1 - b2) g^2, w -= lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + eps). The powers
/// come from integer_power, so they have the same bits everywhere.
template <typename T>
void adam_step(std::int64_t n, double lr, double b1, double b2, double eps, std::int64_t t,
               const T* g, T* m, T* v, T* w);

/// A step of each item.
template <typename T>
void sgd_steps(std::span<const math::SgdItem<T>> items, T lr, T momentum);
template <typename T>
void adam_steps(std::span<const math::AdamItem<T>> items, double lr, double b1, double b2,
                double eps);

/// base^exponent for exponent >= 0 by repeated squaring, multiplications only.
double integer_power(double base, std::int64_t exponent);

}  // namespace rematch::cpu
