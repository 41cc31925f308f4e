#include "engine/kernels/rotary.h"

#include <algorithm>

#include "engine/cpu/threads.h"

namespace rematch::cpu {

namespace {

/// All rows of one position.
template <typename T>
void rotate_position(const math::RotaryShape& s, std::int64_t position, double direction,
                     const T* x, T* y) {
  for (std::int64_t pair = 0; pair < s.pairs(); ++pair) {
    const math::CosSin by = math::rotation(position, pair, s.size());
    for (std::int64_t b = 0; b < s.batch; ++b) {
      for (std::int64_t h = 0; h < s.heads; ++h) {
        const std::int64_t at = s.row_at(b, position) + h * s.size() + pair;
        math::rotate(by, direction, s.pairs(), x + at, y + at);
      }
    }
  }
  for (std::int64_t b = 0; b < s.batch; ++b) {
    const std::int64_t rest = s.row_at(b, position) + s.features;
    std::copy_n(x + rest, s.width - s.features, y + rest);
  }
}

}  // namespace

template <typename T>
void rotary(const math::RotaryShape& s, double direction, const T* x, T* y) {
  const std::int64_t work = std::max<std::int64_t>(s.batch * s.width, 1);
  parallel(s.positions, kGrain / work, 1, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t p = begin; p < end; ++p) rotate_position(s, p, direction, x, y);
  });
}

REMATCH_ROTARY_KERNELS(REMATCH_INSTANTIATE);

}  // namespace rematch::cpu
