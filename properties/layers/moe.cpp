#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "properties/layers/layer.h"

namespace rematch {
namespace {

bool draws_jitter(const LayerSpec& l) { return l.p > 0; }

std::int64_t rows_of(const Shape& x) { return x.elements() / x[x.rank() - 1]; }

}  // namespace

constinit const Layer moe_layer{
    .name = "moe",
    // p: of the uniform noise that is added to the logits in training.
    .fields = {"experts", "top", "p", "stream", "frozen", "eval"},
    .shape =
        [](ShapeWalk& s) {
          const LayerSpec& l = s.spec();
          if (s.x().rank() == 4) s.fail("an input of rank 2 or 3", to_string(s.x()));
          if (l.experts < 1 || l.experts > kMaxCaseElements) {
            s.fail("experts of at least 1", std::to_string(l.experts));
          }
          if (l.top < 1 || l.top > l.experts) {
            s.fail("top in 1.." + std::to_string(l.experts), std::to_string(l.top));
          }
          if (!(l.p >= 0 && l.p <= 1e6)) s.fail("p in [0, 1e6]", std::to_string(l.p));
          const std::int64_t width = s.width();
          s.product_of(std::array{l.experts, width, width});
          const double most = 1 / std::sqrt(static_cast<double>(width));
          s.parameter("router", Shape{l.experts, width}, -most, most);
          s.parameter("experts", Shape{l.experts, width, width}, -most, most);
          s.buffer("load", Shape{l.experts}, 0);
          s.count(std::array{rows_of(s.x()), l.experts});
          s.count(std::array{rows_of(s.x()), l.top, width});
          s.same_output();
        },
    .facts =
        [](FactsWriter& w) {
          using What = FactsWriter::What;
          using When = FactsWriter::When;
          const std::int64_t rows = rows_of(w.x);
          if (w.train && draws_jitter(w.spec)) w.f.drawn = rows * w.spec.experts;
          w.save(What::operand, 0, When::parameter_requires_grad, 0);
          w.save(What::parameter, 0, When::operand_requires_grad, 0);
          w.save(What::parameter, 1, When::operand_requires_grad, 0);
          // Probabilities, who was chosen, and their outputs.
          w.save_own(rows * w.spec.experts * w.item);
          w.save_own(rows * w.spec.top * static_cast<std::int64_t>(sizeof(std::int32_t)));
          w.save_own(w.x.elements() * w.spec.top * w.item);
        },
    .draws = draws_jitter,
    .has_products = true,
    .has_parameters = true,
    .stateful = true,
    .overwritable = true,
    .weights = {.rows = 8, .sequences = 8},
    .draw =
        [](ModelDraw& m, LayerKind kind) {
          LayerSpec l;
          l.kind = kind;
          l.experts = m.draw.range(2, 4);
          l.top = m.draw.range(1, 2);
          l.p = m.draw.pick(std::array{0.0, 0.25});
          l.stream = m.draw_stream();
          m.append(l);
        },
    .wide_floor = 1,
    .repair = [](LayerSpec& l, const Shape& /*x*/,
                 const Shape& /*other*/) { l.top = std::min(l.top, l.experts); },
};

}  // namespace rematch
