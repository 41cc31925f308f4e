#include "engine/kernels/kv_cache.h"

#include "engine/cuda/runtime/launch.h"
#include "engine/math/lane_order.h"

namespace rematch::cuda {

namespace {

template <typename T>
struct Prepended {
  std::int64_t inner_a;
  std::int64_t inner_b;
  const T* a;
  const T* b;
  __device__ void operator()(std::int64_t i, T& out) const {
    const std::int64_t row = math::quotient(i, inner_a + inner_b);
    const std::int64_t col = i - row * (inner_a + inner_b);
    out = col < inner_a ? a[col] : b[row * inner_b + col - inner_a];
  }
};

}  // namespace

template <typename T>
void prepend(std::int64_t outer, std::int64_t inner_a, std::int64_t inner_b, const T* a, const T* b,
             T* out) {
  visit<1>("prepend", outer * (inner_a + inner_b), Prepended<T>{inner_a, inner_b, a, b},
           Out<T>{out});
}

REMATCH_KV_CACHE_KERNELS(REMATCH_INSTANTIATE);

}  // namespace rematch::cuda
