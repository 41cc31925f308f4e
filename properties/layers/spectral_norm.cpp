#include <algorithm>
#include <cmath>
#include <span>

#include "properties/bounds/functions.h"
#include "properties/layers/blocks.h"
#include "properties/layers/layer.h"

namespace rematch {
namespace {

/// The value of each element of a unit vector whose elements are equal; the same in every dtype.
double unit(std::int64_t extent) {
  return static_cast<float>(1 / std::sqrt(static_cast<double>(extent)));
}

}  // namespace

namespace rounding {
namespace {

constexpr double kShortest = 1e-12;

/// A row of a matrix [., width] times v.
Var row_product(Bounds& t, const Vars& matrix, std::size_t row, std::span<const Var> v) {
  for (std::size_t i = 0; i < v.size(); ++i) t.plus_product(matrix[row * v.size() + i], v[i]);
  return t.sum();
}

/// x / max(|x|, shortest), as constants.
Vars unit_vector(Bounds& t, const Vars& x) {
  for (const Var v : x) t.plus_product(v, v);
  const Bounded length = t[root(t, t.sum())];
  // A length on which side of the shortest one is open may be either.
  const double error = length.value < kShortest ? length.error + kShortest : length.error;
  const Var inverse = reciprocal(t, t.leaf({std::max(length.value, kShortest), error}));
  return map(x, [&](Var v) { return t.leaf(t[t.plus_product(v, inverse).sum()]); });
}

std::vector<Vars> spectral_norm_bounds(LayerRun& l) {
  Bounds& t = l.bounds;
  const Vars& weight = l.parameters[0];
  Vars& u = l.buffers[0];
  Vars& v = l.buffers[1];
  if (l.train) {
    Vars columns;
    for (std::size_t j = 0; j < v.size(); ++j) {
      for (std::size_t i = 0; i < u.size(); ++i) t.plus_product(weight[i * v.size() + j], u[i]);
      columns.push_back(t.sum());
    }
    v = unit_vector(t, columns);
  }
  Vars rows;
  for (std::size_t i = 0; i < u.size(); ++i) rows.push_back(row_product(t, weight, i, v));
  if (l.train) u = unit_vector(t, rows);
  for (std::size_t i = 0; i < u.size(); ++i) t.plus_product(u[i], rows[i]);
  const Var sigma = t.sum();
  const double sign = t[sigma].value < 0 ? -1 : 1;
  const Var inverse = reciprocal(t, t.plus(sigma, sign).sum());
  const Vars normalised =
      map(weight, [&](Var w) { return t.plus_product(w, inverse, sign).sum(); });
  Vars y;
  for (std::size_t first = 0; first < l.operands[0].size(); first += v.size()) {
    const auto x = std::span(l.operands[0]).subspan(first, v.size());
    for (std::size_t i = 0; i < u.size(); ++i) {
      const Var product = row_product(t, normalised, i, x);
      y.push_back(l.spec.bias ? t.plus(product).plus(l.parameters[1][i]).sum() : product);
    }
  }
  return {y};
}

}  // namespace
}  // namespace rounding

constinit const Layer spectral_norm_layer{
    .name = "spectral_norm",
    .fields = {"features", "bias", "frozen", "eval"},
    .shape =
        [](ShapeWalk& s) {
          if (s.x().rank() > 3) s.fail("an input of rank 2 or 3", to_string(s.x()));
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
    .in_blocks = [](const FactsWriter& w) { return linear_in_blocks(w, w.spec.features); },
    .bounds = rounding::spectral_norm_bounds,
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
