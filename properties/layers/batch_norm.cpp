#include "properties/layers/blocks.h"
#include "properties/layers/layer.h"
#include "properties/layers/normalised.h"

namespace rematch {

namespace rounding {
namespace {

constexpr double kBatchMomentum = 0.1;

std::vector<Vars> batch_norm_bounds(LayerRun& l) {
  Bounds& t = l.bounds;
  const auto plane = static_cast<std::size_t>(extent_from(l.shape, 2));
  const auto channels = static_cast<std::size_t>(l.shape[1]);
  const auto channel_of = [=](std::size_t i) {
    return static_cast<std::int64_t>(i / plane % channels);
  };
  if (l.train) {
    std::vector<Normalised> seen;
    Vars y = group_normalised(l, l.shape[1], true, channel_of, channel_of, &seen);
    const double count = static_cast<double>(l.operands[0].size() / channels);
    for (std::size_t c = 0; c < channels; ++c) {
      Var& mean = l.buffers[0][c];
      Var& variance = l.buffers[1][c];
      mean = t.plus(mean, 1 - kBatchMomentum).plus(seen[c].mean, kBatchMomentum).sum();
      variance = t.plus(variance, 1 - kBatchMomentum)
                     .plus(seen[c].variance, kBatchMomentum * count / (count - 1))
                     .sum();
    }
    return {y};
  }
  const Vars scales = map(l.buffers[1], [&](Var v) { return inverse_root(t, v, kNormEpsilon); });
  Vars y;
  for (std::size_t i = 0; i < l.operands[0].size(); ++i) {
    const std::size_t c = at(channel_of(i));
    const Var d = t.plus(l.operands[0][i]).plus(l.buffers[0][c], -1).sum();
    const Var x = t.plus_product(d, scales[c]).sum();
    y.push_back(t.plus_product(x, l.parameters[0][c]).plus(l.parameters[1][c]).sum());
  }
  return {y};
}

}  // namespace
}  // namespace rounding

constinit const Layer batch_norm_layer{
    .name = "batch_norm",
    .fields = {"frozen", "eval"},
    .shape =
        [](ShapeWalk& s) {
          if (s.x().rank() == 3 || s.x().rank() > 4)
            s.fail("an input of rank 2 or 4", to_string(s.x()));
          const std::int64_t channels = s.x()[1];
          if (s.train() && s.x().elements() == channels) {
            s.fail("more than one value per channel in train mode", to_string(s.x()));
          }
          s.scale(channels);
          s.shift(channels);
          s.buffer("running_mean", Shape{channels}, 0);
          s.buffer("running_var", Shape{channels}, 1);
          s.same_output();
        },
    .facts = [](FactsWriter& w) { w.save_normalised(w.x[1]); },
    .in_blocks =
        [](const FactsWriter& w) {
          const std::int64_t count = w.x.elements() / w.x[1];
          return w.x.rank() == 2 ? count > math::kChunkRows : count > math::kSumBlock;
        },
    .bounds = rounding::batch_norm_bounds,
    .has_parameters = true,
    .stateful = true,
    .overwritable = true,
    .weights = {.convolutional = 1, .rows = 15, .images = 20},
    .draw =
        [](ModelDraw& m, LayerKind kind) {
          if (m.train && m.x().elements() == m.x()[1]) return m.append_simple();
          m.append(kind);
        },
    .standard_floor = 11,
    .wide_floor = 7.7,
};

}  // namespace rematch
