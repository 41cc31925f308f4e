#include <numeric>

#include "properties/layers/blocks.h"
#include "properties/layers/layer.h"
#include "properties/layers/normalised.h"

namespace rematch {

namespace rounding {
namespace {

std::vector<Vars> group_norm_bounds(LayerRun& l) {
  const auto plane = static_cast<std::size_t>(extent_from(l.shape, 2));
  const auto channels = static_cast<std::size_t>(l.shape[1]);
  const std::size_t size = plane * channels / static_cast<std::size_t>(l.spec.groups);
  return {group_normalised(
      l, l.shape[0] * l.spec.groups, true,
      [=](std::size_t i) { return static_cast<std::int64_t>(i / size); },
      [=](std::size_t i) { return static_cast<std::int64_t>(i / plane % channels); })};
}

}  // namespace
}  // namespace rounding

constinit const Layer group_norm_layer{
    .name = "group_norm",
    .fields = {"groups", "frozen"},
    .shape =
        [](ShapeWalk& s) {
          if (s.x().rank() == 3 || s.x().rank() > 4)
            s.fail("an input of rank 2 or 4", to_string(s.x()));
          const std::int64_t channels = s.x()[1];
          const std::int64_t groups = s.spec().groups;
          if (groups < 1 || channels % groups != 0) {
            s.fail("groups that divide the " + std::to_string(channels) + " channels",
                   std::to_string(groups));
          }
          s.scale(channels);
          s.shift(channels);
          s.same_output();
        },
    .facts = [](FactsWriter& w) { w.save_normalised(w.x[0] * w.spec.groups); },
    .in_blocks =
        [](const FactsWriter& w) {
          const std::int64_t group = w.x.elements() / (w.x[0] * w.spec.groups);
          return sums_in_blocks(group, w.x.rank() == 2 ? w.x[0] : 1);
        },
    .bounds = rounding::group_norm_bounds,
    .has_parameters = true,
    .overwritable = true,
    .weights = {.rows = 10, .images = 14},
    .draw =
        [](ModelDraw& m, LayerKind kind) {
          LayerSpec l;
          l.kind = kind;
          l.groups = std::gcd(m.x()[1], std::int64_t{m.draw.pick(std::array{1, 2, 3, 4, 24})});
          m.append(l);
        },
    .wide_floor = 8,
    .repair = [](LayerSpec& l, const Shape& x,
                 const Shape&) { l.groups = std::gcd(l.groups, x[1]); },
};

}  // namespace rematch
