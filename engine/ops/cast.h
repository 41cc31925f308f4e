#pragma once

#include "engine/tensor/tensor.h"

namespace rematch {

// Casts are not ops in the sense of engine/ambient/op_watcher.h: watchers do not see them, because
// their number depends on a cache.

/// The values of `x` in another dtype, float32 or bfloat16 (rounded to nearest, ties to even). With
/// the dtype that it has, x itself. The gradient is cast back. Saves nothing. Throws
/// std::invalid_argument for other dtypes.
Tensor cast(const Tensor& x, DType to);

/// The same without recording, whatever grad mode says.
Tensor cast_values(Tensor x, DType to);

/// Values that kernels can read: float32 for bfloat16, anything else (undefined, too) as it is.
/// Records nothing.
Tensor wide_values(Tensor x);

/// An activation as an op reads it that autocast lets run in the ambient Autocast::dtype: float32
/// cast, everything else as it is. Never from the cache, which would keep it until the scope ends:
/// the input of a recomputation looks like a parameter.
Tensor autocast_input(const Tensor& x);

/// A weight or bias likewise; undefined remains undefined. The values for a float32 leaf that
/// requires grad and is no view come from the ambient cache, where there is one. Each call makes a
/// history of its own.
Tensor autocast_parameter(const Tensor& w);

}  // namespace rematch
