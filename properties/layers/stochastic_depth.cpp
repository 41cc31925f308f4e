#include <array>

#include "properties/layers/blocks.h"
#include "properties/layers/branch.h"

namespace rematch {
namespace {

bool draws_factors(const LayerSpec& l) { return l.p > 0; }

}  // namespace

constinit const Layer stochastic_depth_layer{
    .name = "stochastic_depth",
    // p: that a sample skips the branch in training.
    .fields = {"p", "stream", "frozen", "eval"},
    .shape =
        [](ShapeWalk& s) {
          const double p = s.spec().p;
          if (!(p >= 0 && p < 1)) s.fail("p in [0, 1)", std::to_string(p));
          branch_shape(s);
        },
    .facts =
        [](FactsWriter& w) {
          const bool drawn = w.train && draws_factors(w.spec);
          if (drawn) w.f.drawn = w.x[0];
          branch_facts(w, drawn);
        },
    .in_blocks = [](const FactsWriter& w) { return linear_in_blocks(w, w.x[w.x.rank() - 1]); },
    .bounds = [](rounding::LayerRun& l) { return rounding::branch_bounds(l, false); },
    .draws = draws_factors,
    .saves_vary = [](const LayerSpec& l, bool train) { return draws_in(l, train); },
    .has_products = true,
    .has_parameters = true,
    .overwritable = true,
    .weights = {.rows = 8, .sequences = 8},
    .draw =
        [](ModelDraw& m, LayerKind kind) {
          LayerSpec l;
          l.kind = kind;
          l.p = m.draw.pick(std::array{0.5, 0.5, 0.25, 0.0});
          l.stream = m.draw_stream();
          m.append(l);
        },
    .wide_floor = 1,
};

}  // namespace rematch
