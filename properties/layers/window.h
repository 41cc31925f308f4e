#pragma once

#include <cstdint>

#include "properties/layers/layer_run.h"

namespace rematch::rounding {

/// Calls visit(n, y, x, taps) for each position of a window over [n, ., h, w], where taps are
/// the offsets (ky, kx) that lie on the image.
template <class Visit>
void for_each_window(const LayerRun& l, const Visit& visit) {
  const std::int64_t k = l.spec.kernel;
  for (std::int64_t y = 0; y < l.output[2]; ++y) {
    for (std::int64_t x = 0; x < l.output[3]; ++x) {
      for (std::int64_t ky = 0; ky < k; ++ky) {
        for (std::int64_t kx = 0; kx < k; ++kx) {
          const std::int64_t iy = y * l.spec.stride + ky - l.spec.padding;
          const std::int64_t ix = x * l.spec.stride + kx - l.spec.padding;
          if (iy < 0 || ix < 0 || iy >= l.shape[2] || ix >= l.shape[3]) continue;
          visit(y * l.output[3] + x, iy * l.shape[3] + ix, ky * k + kx);
        }
      }
    }
  }
}

}  // namespace rematch::rounding
