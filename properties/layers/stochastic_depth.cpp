#include <array>
#include <cmath>

#include "properties/layers/layer.h"

namespace rematch {
namespace {

bool draws(const LayerSpec& l) { return l.p > 0; }

}  // namespace

constinit const Layer stochastic_depth_layer{
    .name = "stochastic_depth",
    // p: that a sample skips the branch in training.
    .fields = {"p", "stream", "frozen", "eval"},
    .shape =
        [](ShapeWalk& s) {
          const double p = s.spec().p;
          if (s.x().rank() == 4) s.fail("an input of rank 2 or 3", to_string(s.x()));
          if (!(p >= 0 && p < 1)) s.fail("p in [0, 1)", std::to_string(p));
          const std::int64_t width = s.width();
          s.product_of(std::array{width, width});
          const double most = 1 / std::sqrt(static_cast<double>(width));
          s.parameter("weight", Shape{width, width}, -most, most);
          s.same_output();
        },
    .facts =
        [](FactsWriter& w) {
          using What = FactsWriter::What;
          using When = FactsWriter::When;
          w.save(What::operand, 0, When::parameter_requires_grad, 0);
          w.save(What::parameter, 0, When::operand_requires_grad, 0);
          if (!w.train || !draws(w.spec)) return;
          w.f.drawn = w.x[0];
          // The factor of each sample.
          w.save_own(w.x[0] * w.item);
        },
    .draws = draws,
    .saves_what_it_draws = true,
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
