#include "properties/layers/recurrent.h"

#include <array>
#include <cmath>

namespace rematch {

using math::Cell;
using math::RecurrentShape;

RecurrentShape recurrent_shape(Cell cell, const LayerSpec& spec, const Shape& x) {
  return {.cell = cell, .batch = x[0], .steps = x[1], .width = x[2], .features = spec.features};
}

void walk_recurrent(ShapeWalk& s, Cell cell) {
  s.need_rank(3);
  s.need_features();
  const RecurrentShape r = recurrent_shape(cell, s.spec(), s.x());
  s.product_of(std::array{r.rows(), std::max(r.width, r.features)});
  const double most = 1 / std::sqrt(static_cast<double>(r.features));
  const auto parameter = [&](std::string_view role, const Shape& shape) {
    s.parameter(role, shape, -most, most);
  };
  parameter("weight_ih", Shape{r.rows(), r.width});
  parameter("weight_hh", Shape{r.rows(), r.features});
  if (s.spec().bias) {
    parameter("bias_ih", Shape{r.rows()});
    parameter("bias_hh", Shape{r.rows()});
  }
  s.count(std::array{r.batch, r.steps, r.kept()});
  s.output_of_width(r.features);
}

void recurrent_facts(FactsWriter& w, Cell cell) {
  using What = FactsWriter::What;
  using When = FactsWriter::When;
  const RecurrentShape r = recurrent_shape(cell, w.spec, w.x);
  const std::int64_t steps = r.batch * r.steps;
  w.save(What::operand, 0, When::parameter_requires_grad, 0);
  w.save(What::parameter, 0, When::operand_requires_grad, 0);
  w.save(What::parameter, 1);
  w.save(What::output);
  w.save_own(steps * r.kept() * w.item);
  if (cell == Cell::lstm) w.save_own(steps * r.features * w.item);
}

void draw_recurrent(ModelDraw& m, LayerKind kind) {
  LayerSpec l;
  l.kind = kind;
  l.features = m.draw.chance(70) ? m.palette[0] : m.draw.range(1, 8);
  l.bias = m.draw.chance(80);
  m.append(l);
}

}  // namespace rematch
