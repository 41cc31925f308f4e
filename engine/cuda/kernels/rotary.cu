#include "engine/kernels/rotary.h"

#include "engine/cuda/runtime/launch.h"
#include "engine/math/lane_order.h"

namespace rematch::cuda {

namespace {

/// A thread a pair of a position, for all heads and rows; those behind the pairs copy a feature.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    rotary_kernel(math::RotaryShape s, double direction, const T* x, T* y) {
  const std::int64_t each = s.pairs() + s.width - s.features;
  for (std::int64_t n = global_thread(); n < s.positions * each; n += global_threads()) {
    const std::int64_t position = math::quotient(n, each);
    const std::int64_t pair = n - position * each;
    if (pair >= s.pairs()) {
      for (std::int64_t b = 0; b < s.batch; ++b) {
        const std::int64_t at = s.row_at(b, position) + s.features + pair - s.pairs();
        y[at] = x[at];
      }
      continue;
    }
    const math::CosSin by = math::rotation(position, pair, s.size());
    for (std::int64_t b = 0; b < s.batch; ++b) {
      for (std::int64_t h = 0; h < s.heads; ++h) {
        const std::int64_t at = s.row_at(b, position) + h * s.size() + pair;
        math::rotate(by, direction, s.pairs(), x + at, y + at);
      }
    }
  }
}

}  // namespace

template <typename T>
void rotary(const math::RotaryShape& s, double direction, const T* x, T* y) {
  const std::int64_t threads = s.positions * (s.pairs() + s.width - s.features);
  if (threads * s.batch == 0) return;
  rotary_kernel<<<grid_for(threads), kThreads, 0, stream()>>>(s, direction, x, y);
  check_launch("rotary");
}

REMATCH_ROTARY_KERNELS(REMATCH_INSTANTIATE);

}  // namespace rematch::cuda
