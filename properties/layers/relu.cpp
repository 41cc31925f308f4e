#include "properties/layers/layer.h"

namespace rematch {
namespace {

constexpr std::string_view kRelu[] = {"relu"};
constexpr std::span<const std::string_view> kReluOp = kRelu;

}  // namespace

constinit const Layer relu_layer{
    .name = "relu",
    .fields = {"in_place"},
    .ops = [](const LayerSpec& l, bool) { return l.in_place ? kNoOps : kReluOp; },
    .facts =
        [](FactsWriter& w) {
          w.f.aliases_operand = w.spec.in_place;
          w.save(FactsWriter::What::output);
        },
    .bounds =
        [](rounding::LayerRun& l) {
          return l.each([&](rounding::Var v) { return l.bounds.rectified(v, 0); });
        },
    .exchangeable = true,
    .weights = {.perceptron = 1, .convolutional = 1, .rows = 30, .sequences = 30, .images = 30},
    .chained_in_tail = true,
    .standard_floor = 26,
    .wide_floor = 24,
    .rank = 1,
    .stands_in = true,
};

}  // namespace rematch
