#include "engine/kernels/concat.h"

#include <algorithm>

namespace rematch::cpu {

template <typename T>
void concat2(std::int64_t outer, std::int64_t inner_a, std::int64_t inner_b, const T* a, const T* b,
             T* out) {
  for (std::int64_t i = 0; i < outer; ++i) {
    out = std::copy_n(a + i * inner_a, inner_a, out);
    out = std::copy_n(b + i * inner_b, inner_b, out);
  }
}

template <typename T>
void split2(std::int64_t outer, std::int64_t inner_a, std::int64_t inner_b, const T* x, T* a,
            T* b) {
  for (std::int64_t i = 0; i < outer; ++i, x += inner_a + inner_b) {
    if (a != nullptr) std::copy_n(x, inner_a, a + i * inner_a);
    if (b != nullptr) std::copy_n(x + inner_a, inner_b, b + i * inner_b);
  }
}

REMATCH_CONCAT_KERNELS(REMATCH_INSTANTIATE);

}  // namespace rematch::cpu
