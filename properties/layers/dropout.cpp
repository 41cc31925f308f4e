#include "properties/layers/layer.h"

namespace rematch {
namespace {

constexpr std::string_view kDropout[] = {"dropout"};
constexpr std::span<const std::string_view> kDropoutOp = kDropout;

}  // namespace

constinit const Layer dropout_layer{
    .name = "dropout",
    .fields = {"p", "stream", "eval"},
    .shape =
        [](ShapeWalk& s) {
          const double p = s.spec().p;
          if (!(p >= 0 && p < 1)) s.fail("p in [0, 1)", std::to_string(p));
          s.same_output();
        },
    .ops = [](const LayerSpec& l, bool train) { return train && l.p > 0 ? kDropoutOp : kNoOps; },
    .facts =
        [](FactsWriter& w) {
          // The mask, a byte an element.
          if (w.draw_unless(!w.train || w.spec.p == 0)) w.save_own(w.x.elements());
        },
    .bounds = [](rounding::LayerRun& l) { return std::vector<rounding::Vars>{l.operands[0]}; },
    .draws = [](const LayerSpec& l) { return l.p > 0; },
    .weights = {.perceptron = 1, .convolutional = 1, .rows = 26, .sequences = 26, .images = 22},
    .draw_standard =
        [](ModelDraw& m, LayerSpec& l) {
          l.p = m.on_images() ? 0.25 : m.draw.pick(std::array{0.1, 0.25, 0.5});
          return true;
        },
    .draw =
        [](ModelDraw& m, LayerKind kind) {
          LayerSpec l;
          l.kind = kind;
          l.p = m.draw.pick(std::array{0.1, 0.25, 0.5, 0.5, 0.9, 0.0});
          l.stream = m.draw_stream();
          m.append(l);
        },
    .chained_in_tail = true,
    .standard_floor = 27,
    .wide_floor = 19,
    .rank = 2,
    .stands_in = true,
    .simple_p = 0.5,
};

}  // namespace rematch
