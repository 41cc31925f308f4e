#include "engine/cpu/kv_cache.h"

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

#define REMATCH_INSTANTIATE(T) \
  template void prepend(std::int64_t, std::int64_t, std::int64_t, const T*, const T*, T*);
REMATCH_INSTANTIATE(float)
REMATCH_INSTANTIATE(double)
#undef REMATCH_INSTANTIATE

}  // namespace rematch::cpu
