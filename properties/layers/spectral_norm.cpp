#include <cmath>

#include "properties/layers/layer.h"

namespace rematch {
namespace {

/// Of each element of a unit vector whose elements are equal; the same in every dtype.
double unit(std::int64_t extent) {
  return static_cast<float>(1 / std::sqrt(static_cast<double>(extent)));
}

}  // namespace

constinit const Layer spectral_norm_layer{
    .name = "spectral_norm",
    .fields = {"features", "bias", "frozen", "eval"},
    .shape =
        [](ShapeWalk& s) {
          if (s.x().rank() == 4) s.fail("an input of rank 2 or 3", to_string(s.x()));
          s.need_features();
          const std::int64_t features = s.spec().features;
          const std::array sizes{features, s.width()};
          s.product_of(sizes);
          // Positive, as u and v are in the beginning: sigma = u^T weight v, which the weight is
          // divided by, is far from zero even where no forward has moved them.
          s.parameter("weight", Shape(sizes), 0.5, 1.5);
          if (s.spec().bias) s.shift(features);
          s.buffer("u", Shape{features}, unit(features));
          s.buffer("v", Shape{s.width()}, unit(s.width()));
          s.output_of_width(features);
        },
    .facts =
        [](FactsWriter& w) {
          const std::int64_t features = w.spec.features;
          const std::int64_t width = w.x[features_dimension(w.x)];
          // Evaluation changes nothing, so that it reads u and v as it does parameters.
          if (w.train) w.f.state_bytes = features * w.item;
          w.save(FactsWriter::What::operand, 0, FactsWriter::When::parameter_requires_grad, 0);
          w.save_own(features * width * w.item);
          w.save_own(features * w.item);
          w.save_own(width * w.item);
          w.save_own(w.item);
        },
    .has_products = true,
    .has_parameters = true,
    .stateful = true,
    .reads_state = true,
    // u and v follow the weight, but the gradient takes them as given.
    .changes_gradients = trains_in,
    .overwritable = true,
    .weights = {.rows = 8, .sequences = 8},
    .draw =
        [](ModelDraw& m, LayerKind kind) {
          LayerSpec l;
          l.kind = kind;
          l.features = m.draw.chance(75) ? m.palette[m.draw.below(2)] : m.draw.range(1, 16);
          l.bias = m.draw.chance(80);
          m.append(l);
        },
    .wide_floor = 1,
};

}  // namespace rematch
