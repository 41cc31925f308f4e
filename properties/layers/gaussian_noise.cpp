#include "properties/layers/layer.h"

namespace rematch {
namespace {

constexpr std::string_view kNoise[] = {"gaussian_noise"};
constexpr std::span<const std::string_view> kNoiseOp = kNoise;

}  // namespace

constinit const Layer gaussian_noise_layer{
    .name = "gaussian_noise",
    .fields = {"p", "stream", "eval"},
    .shape =
        [](ShapeWalk& s) {
          const double p = s.spec().p;
          if (!(p >= 0 && p <= 1e6)) s.fail("p in [0, 1e6]", std::to_string(p));
          s.same_output();
        },
    .ops = [](const LayerSpec& l, bool train) { return train && l.p > 0 ? kNoiseOp : kNoOps; },
    .facts =
        [](FactsWriter& w) {
          w.f.backward = BackwardUse::share;
          w.draw_unless(!w.train || w.spec.p == 0);
        },
    .bounds = [](rounding::LayerRun& l) { return std::vector<rounding::Vars>{l.operands[0]}; },
    .draws = [](const LayerSpec& l) { return l.p > 0; },
    .noise_depends_on_values = true,
    .weights = {.rows = 8, .sequences = 8, .images = 8},
    .draw =
        [](ModelDraw& m, LayerKind kind) {
          LayerSpec l;
          l.kind = kind;
          l.p = m.draw.pick(std::array{0.1, 0.5, 1.0, 0.0});
          l.stream = m.draw_stream();
          m.append(l);
        },
    .wide_floor = 7.5,
    .simple_p = 0.5,
};

}  // namespace rematch
