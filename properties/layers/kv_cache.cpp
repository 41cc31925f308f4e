#include <algorithm>

#include "properties/layers/layer.h"

namespace rematch {
namespace {

constexpr std::int64_t kMostKept = 4;
/// The longest sequence that the mix makes longer.
constexpr std::int64_t kLongest = 12;

}  // namespace

namespace rounding {
namespace {

/// The cache before every sequence. Training leaves the last rows of the first one.
std::vector<Vars> kv_cache_bounds(LayerRun& l) {
  Vars& cache = l.buffers[0];
  const auto cached = static_cast<std::ptrdiff_t>(cache.size());
  const auto added = static_cast<std::ptrdiff_t>(extent_from(l.shape, 1));
  Vars y;
  for (auto x = l.operands[0].begin(); x != l.operands[0].end(); x += added) {
    y.insert(y.end(), cache.begin(), cache.end());
    y.insert(y.end(), x, x + added);
  }
  if (l.train) cache.assign(y.begin() + added, y.begin() + added + cached);
  return {y};
}

}  // namespace
}  // namespace rounding

constinit const Layer kv_cache_layer{
    .name = "kv_cache",
    .fields = {"kept", "eval"},
    .shape =
        [](ShapeWalk& s) {
          s.need_rank(3);
          const std::int64_t kept = s.spec().kept;
          if (kept < 1 || kept > kMostKept) {
            s.fail("kept in 1.." + std::to_string(kMostKept), std::to_string(kept));
          }
          // Not 0: rows that were forgotten shall not look like those of a new cache.
          s.buffer("cache", Shape{kept, s.x()[2]}, 0.5);
          s.output(std::array{s.x()[0], kept + s.x()[1], s.x()[2]});
        },
    .facts = [](FactsWriter& w) { w.f.state_bytes = w.spec.kept * w.x[2] * w.item; },
    .bounds = rounding::kv_cache_bounds,
    .stateful = true,
    .reads_state = true,
    .overwritable = true,
    .weights = {.sequences = 14},
    .draw =
        [](ModelDraw& m, LayerKind kind) {
          const std::int64_t most = std::min(kMostKept, kLongest - m.x()[1]);
          if (most < 1) return m.append_simple();
          LayerSpec l;
          l.kind = kind;
          l.kept = m.draw.range(1, static_cast<int>(most));
          m.append(l);
        },
    .wide_floor = 1,
};

}  // namespace rematch
