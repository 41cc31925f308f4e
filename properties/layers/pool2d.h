#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "properties/layers/geometry.h"
#include "properties/layers/model_draw.h"
#include "properties/layers/window.h"

/// Members that the two pools have in common.
namespace rematch {

inline void pool_shape(ShapeWalk& s) {
  const auto [h, w] = s.window();
  if (s.spec().padding > s.spec().kernel / 2) {
    s.fail("padding of at most half the kernel", std::to_string(s.spec().padding));
  }
  s.output(std::array{s.x()[0], s.x()[1], h, w});
}

inline void draw_pool(ModelDraw& m, LayerKind kind) {
  LayerSpec l;
  l.kind = kind;
  l.kernel = m.draw.range(2, 3);
  l.padding = m.draw.chance(25) ? 1 : 0;
  l.stride = m.draw.range(1, 2);
  if (l.kernel > std::min(m.x()[2], m.x()[3]) + 2 * l.padding) l.kernel = 1;
  if (l.kernel == 1) l.padding = 0;
  m.append(l);
}

inline void repair_pool(LayerSpec& l, const Shape& x, const Shape& /*other*/) {
  if (x.rank() == 4) l.kernel = std::min(l.kernel, std::min(x[2], x[3]) + 2 * l.padding);
  l.padding = std::min(l.padding, l.kernel / 2);
}

namespace rounding {

/// One output: pooled(window) for each window of each channel.
template <class Pooled>
std::vector<Vars> pool_bounds(const LayerRun& l, const Pooled& pooled) {
  const std::int64_t pixels = l.shape[2] * l.shape[3];
  std::vector<std::vector<std::int64_t>> taps(at(l.output[2] * l.output[3]));
  for_each_window(
      l, [&](std::int64_t to, std::int64_t from, std::int64_t) { taps[at(to)].push_back(from); });
  Vars y;
  for (std::int64_t plane = 0; plane < l.shape[0] * l.shape[1]; ++plane) {
    for (const auto& here : taps) {
      Vars window;
      for (const std::int64_t pixel : here) {
        window.push_back(l.operands[0][at(plane * pixels + pixel)]);
      }
      y.push_back(pooled(window));
    }
  }
  return {y};
}

}  // namespace rounding
}  // namespace rematch
