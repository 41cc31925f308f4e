#pragma once

#include "engine/tensor/tensor.h"

namespace rematch {

/// a + b, shapes and dtypes equal. Saves nothing.
Tensor add(const Tensor& a, const Tensor& b);
/// a * b elementwise. Saves each operand that the other's gradient needs.
Tensor mul(const Tensor& a, const Tensor& b);
/// factor * x. Saves nothing.
Tensor scale(const Tensor& x, double factor);
/// A copy of x, with a hook that multiplies its gradient by `factor`. Saves nothing.
Tensor hooked(const Tensor& x, double factor);
/// Sum of all elements, a scalar; the order is fixed. Saves nothing.
Tensor sum(const Tensor& x);

/// x += y, in place.
Tensor add_(Tensor& x, const Tensor& y);
/// x *= factor, in place.
Tensor scale_(Tensor& x, double factor);

}  // namespace rematch
