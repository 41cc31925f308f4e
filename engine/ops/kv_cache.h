#pragma once

#include "engine/tensor/tensor.h"

namespace rematch {

/// x[n, t, f] behind `cache`[kept, f], which every sequence begins with: [n, kept + t, f]. In
/// training the cache then becomes, in place, the last `kept` rows of the first sequence, so that a
/// forward reads what those before it left, as attention over cached keys and values does: one
/// cache for the whole batch. A short
/// x leaves older rows there. No gradient flows into the cache. A recomputation begins with what
/// its forward began with, and does not change the cache again. Saves nothing.
Tensor kv_cache(const Tensor& x, Tensor& cache, bool train);

}  // namespace rematch
