#include "engine/kernels/kv_cache.h"

#include <algorithm>

namespace rematch::cpu {

template <typename T>
void prepend(std::int64_t outer, std::int64_t inner_a, std::int64_t inner_b, const T* a, const T* b,
             T* out) {
  for (std::int64_t i = 0; i < outer; ++i) {
    out = std::copy_n(a, inner_a, out);
    out = std::copy_n(b + i * inner_b, inner_b, out);
  }
}

REMATCH_KV_CACHE_KERNELS(REMATCH_INSTANTIATE);

}  // namespace rematch::cpu
