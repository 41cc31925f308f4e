#include "properties/layers/custom_layer.h"
#include "properties/layers/layer.h"

namespace rematch {

// A layer of the subject's own. Only the subject knows what it computes and saves; its parameters
// count as one, its buffers as one, and the subject reports them one after the other.
constinit const Layer custom_layer{
    .name = "custom",
    .fields = {"layer", "eval", "frozen"},
    .shape =
        [](ShapeWalk& s) {
          const CustomLayer* layer = s.spec().layer;
          if (layer == nullptr) s.fail("a layer of the subject's own", "none");
          const std::vector<std::int64_t> result = layer->result_for(s.x());
          if (result.empty())
            s.fail("an operand that " + layer->declaration + " takes", to_string(s.x()));
          if (layer->parameters) s.parameter("all", Shape{0}, 0, 0);
          if (layer->state) s.buffer("all", Shape{0}, 0);
          s.output(result);
        },
    // No policy knows what it computes.
    .ops = [](const LayerSpec&, bool) { return kNoOps; },
    .facts = [](FactsWriter& w) { w.f.ops = 1; },
    .draws = [](const LayerSpec& l) { return l.layer != nullptr && l.layer->draws; },
    .noise_depends_on_values = true,
    // For all that is known.
    .has_products = true,
    .has_parameters = true,
    .stateful = true,
    .weights = {.rows = 25, .sequences = 25, .images = 25},
    .draw =
        [](ModelDraw& m, LayerKind kind) {
          LayerSpec l;
          l.kind = kind;
          l.layer = m.draw_custom();
          if (l.layer == nullptr) return m.append_simple();
          l.eval = m.draw.chance(20);
          m.append(l);
        },
};

}  // namespace rematch
