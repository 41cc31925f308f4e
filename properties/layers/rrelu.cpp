#include "properties/layers/layer.h"

namespace rematch {
namespace {

constexpr std::string_view kRreluNames[] = {"rrelu", "leaky_relu"};
constexpr std::span<const std::string_view> kTraining = std::span(kRreluNames).first(1);
constexpr std::span<const std::string_view> kEvaluation = std::span(kRreluNames).last(1);

/// In evaluation.
constexpr double kMeanSlope = (1.0 / 8 + 1.0 / 3) / 2;

}  // namespace

constinit const Layer rrelu_layer{
    .name = "rrelu",
    .fields = {"stream", "eval"},
    .ops = [](const LayerSpec&, bool train) { return train ? kTraining : kEvaluation; },
    .facts =
        [](FactsWriter& w) {
          if (!w.train) return w.save(FactsWriter::What::operand);
          w.f.drawn = w.x.elements();
          // The noise: the slope of each element.
          w.save_own(w.x.elements() * w.item);
        },
    .bounds =
        [](rounding::LayerRun& l) {
          return l.each([&](rounding::Var v) { return l.bounds.rectified(v, kMeanSlope); });
        },
    .draws = [](const LayerSpec&) { return true; },
    .noise_depends_on_values = true,
    .weights = {.rows = 8, .sequences = 8, .images = 8},
    .draw =
        [](ModelDraw& m, LayerKind kind) {
          LayerSpec l;
          l.kind = kind;
          l.stream = m.draw_stream();
          m.append(l);
        },
    .wide_floor = 7.5,
};

}  // namespace rematch
