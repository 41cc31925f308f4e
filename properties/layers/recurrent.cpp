#include "properties/layers/recurrent.h"

#include <array>
#include <cmath>
#include <utility>

#include "properties/bounds/functions.h"
#include "properties/layers/blocks.h"

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

bool recurrent_in_blocks(const FactsWriter& w, Cell cell) {
  const RecurrentShape r = recurrent_shape(cell, w.spec, w.x);
  return product_in_blocks(r.batch * r.steps, r.width, r.rows()) ||
         product_in_blocks(r.rows(), r.width, r.batch * r.steps);
}

void draw_recurrent(ModelDraw& m, LayerKind kind) {
  LayerSpec l;
  l.kind = kind;
  l.features = m.draw.chance(70) ? m.palette[0] : m.draw.range(1, 8);
  l.bias = m.draw.chance(80);
  m.append(l);
}

namespace rounding {
namespace {

/// One step of one sample.
class Step {
 public:
  /// `h`: the state before it; empty at the first.
  Step(LayerRun& l, std::int64_t row, const Vars& h)
      : l_(l), width_(l.shape[2]), features_(l.spec.features), row_(row), h_(h) {}

  bool is_first() const { return h_.empty(); }

  /// Adds what the input, or the state before, gives to gate g of unit j.
  void add_input(std::int64_t g, std::int64_t j) const {
    const std::int64_t k = g * features_ + j;
    for (std::int64_t i = 0; i < width_; ++i) {
      l_.bounds.plus_product(l_.operands[0][at(row_ * width_ + i)],
                             l_.parameters[0][at(k * width_ + i)]);
    }
    if (l_.spec.bias) l_.bounds.plus(l_.parameters[2][at(k)]);
  }
  void add_hidden(std::int64_t g, std::int64_t j) const {
    const std::int64_t k = g * features_ + j;
    for (std::int64_t i = 0; !is_first() && i < features_; ++i) {
      l_.bounds.plus_product(h_[at(i)], l_.parameters[1][at(k * features_ + i)]);
    }
    if (l_.spec.bias) l_.bounds.plus(l_.parameters[3][at(k)]);
  }
  Var sum_of(std::int64_t g, std::int64_t j) const {
    add_input(g, j);
    add_hidden(g, j);
    return l_.bounds.sum();
  }

  /// The state h and, of an LSTM, the cell c after it.
  Var gru_unit(std::int64_t j) const {
    Bounds& t = l_.bounds;
    const Var r = sigmoid(t, sum_of(0, j));
    const Var z = sigmoid(t, sum_of(1, j));
    add_hidden(2, j);
    const Var own = t.sum();
    add_input(2, j);
    const Var n = rounding::tanh(t, t.plus_product(r, own).sum());
    if (is_first()) return t.plus(n).plus_product(z, n, -1).sum();
    const Var change = t.plus(h_[at(j)]).plus(n, -1).sum();
    return t.plus(n).plus_product(z, change).sum();
  }
  Var lstm_unit(std::int64_t j, Var& c) const {
    Bounds& t = l_.bounds;
    const Var i = sigmoid(t, sum_of(0, j));
    const Var f = sigmoid(t, sum_of(1, j));
    const Var g = rounding::tanh(t, sum_of(2, j));
    const Var o = sigmoid(t, sum_of(3, j));
    if (!is_first()) t.plus_product(f, c);
    c = t.plus_product(i, g).sum();
    const Var top = rounding::tanh(t, c);
    return t.plus_product(o, top).sum();
  }

 private:
  LayerRun& l_;
  std::int64_t width_;
  std::int64_t features_;
  std::int64_t row_;
  const Vars& h_;
};

/// unit(step, j) for all of them, in order.
template <class Unit>
Vars run_steps(LayerRun& l, const Unit& unit) {
  Vars y;
  for (std::int64_t b = 0; b < l.shape[0]; ++b) {
    Vars h;
    for (std::int64_t s = 0; s < l.shape[1]; ++s) {
      const Step step(l, b * l.shape[1] + s, h);
      Vars next;
      for (std::int64_t j = 0; j < l.spec.features; ++j) next.push_back(unit(step, j));
      h = std::move(next);
      y.insert(y.end(), h.begin(), h.end());
    }
  }
  return y;
}

}  // namespace

std::vector<Vars> gru_bounds(LayerRun& l) {
  return {run_steps(l, [](const Step& step, std::int64_t j) { return step.gru_unit(j); })};
}

std::vector<Vars> lstm_bounds(LayerRun& l) {
  Vars cells(at(l.spec.features));
  return {run_steps(
      l, [&](const Step& step, std::int64_t j) { return step.lstm_unit(j, cells[at(j)]); })};
}

}  // namespace rounding
}  // namespace rematch
