#pragma once

#include "engine/tensor/tensor.h"

namespace rematch {

/// linear() with weight / sigma in place of the weight[m, k], where sigma = u^T weight v estimates
/// its largest singular value: u[m] and v[k], of the weight's dtype, are unit vectors that training
/// brings closer to the singular ones. A training forward takes one step of the power iteration,
///     v = weight^T u / |weight^T u|, u = weight v / |weight v|
/// with lengths of at least 1e-12, and leaves both there; evaluation takes them as they are. So
/// does PyTorch's torch.nn.utils.spectral_norm (Miyato et al., ICLR 2018). The
/// gradient takes u and v as given. A recomputation begins with the u that its forward began with,
/// and does not change either again. `b` may be undefined. Saves x when the weight requires grad,
/// weight / sigma, u, v and sigma.
Tensor spectral_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor& u,
                     Tensor& v, bool train);

}  // namespace rematch
