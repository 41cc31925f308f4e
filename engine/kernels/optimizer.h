#pragma once

#include <cstdint>
#include <span>

#include "engine/kernels/declare.h"
#include "engine/math/update.h"

namespace rematch {

// On the device step counts are the device's, too, and scalars the host's. All items of a step take
// one launch, Adam's two, up to 64 of them; nothing in it depends on the host's state, so it can be
// captured.

/// A step of torch.optim.SGD (dampening 0, no Nesterov, no weight decay) of each item:
/// buf = first ? g : momentum * buf + g; w -= lr * buf. With a null `buf` there is no momentum:
/// w -= lr * g.
REMATCH_DECLARE(void sgd_steps(std::span<const math::SgdItem<T>> items, T lr, T momentum));

/// A step of torch.optim.Adam (Kingma and Ba, 2015; no weight decay) of each item, to step t >= 1:
/// m = b1 m + (1 - b1) g, v = b2 v + (1 - b2) g^2,
/// w -= lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + eps). The powers come from
/// math::integer_power, so they have the same bits everywhere.
REMATCH_DECLARE(void adam_steps(std::span<const math::AdamItem<T>> items, double lr, double b1,
                                double b2, double eps));

#define REMATCH_OPTIMIZER_KERNELS(K) \
  K(sgd_steps);                      \
  K(adam_steps)

}  // namespace rematch
