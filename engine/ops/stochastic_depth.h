#pragma once

#include "engine/ops/dropout.h"
#include "engine/tensor/tensor.h"

namespace rematch {

/// A residual branch with stochastic depth (Huang et al. 2016): y[n] = x[n] + x[n] weight^T /
/// (1 - p) for each sample n, an index of the first dimension of x[..., features], that keeps the
/// branch; a sample that skips it, with probability p in [0, 1), is copied. weight[features,
/// features]. Draws one word per sample (rounded up to 4), by dropout's rule. With p == 0 or in
/// evaluation y = x + x weight^T, and nothing is drawn. Saves x if the weight requires grad and the
/// weight if x does; then, if it has drawn, the factor of each sample: as many bytes however many
/// keep the branch.
Tensor stochastic_depth(const Tensor& x, const Tensor& weight, double p,
                        const RandomOptions& options = {});

/// The same branch with early exits: a sample whose first value is positive is copied, every other
/// one takes the branch as it is, so y[n] = x[n] + x[n] weight^T. Nothing is drawn; a recomputation
/// decides as its forward did because it is given the same values. The decision has no gradient.
/// Saves what stochastic_depth() saves, the factors, 0 or 1, always.
Tensor early_exit(const Tensor& x, const Tensor& weight);

}  // namespace rematch
