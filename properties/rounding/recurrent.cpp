#include "properties/rounding/recurrent.h"

#include "properties/rounding/functions.h"

namespace rematch::rounding {
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
      l_.tape.plus_product(l_.operands[0][at(row_ * width_ + i)],
                           l_.parameters[0][at(k * width_ + i)]);
    }
    if (l_.spec.bias) l_.tape.plus(l_.parameters[2][at(k)]);
  }
  void add_hidden(std::int64_t g, std::int64_t j) const {
    const std::int64_t k = g * features_ + j;
    for (std::int64_t i = 0; !is_first() && i < features_; ++i) {
      l_.tape.plus_product(h_[at(i)], l_.parameters[1][at(k * features_ + i)]);
    }
    if (l_.spec.bias) l_.tape.plus(l_.parameters[3][at(k)]);
  }
  Var sum_of(std::int64_t g, std::int64_t j) const {
    add_input(g, j);
    add_hidden(g, j);
    return l_.tape.sum();
  }

  /// The state h and, of an LSTM, the cell c after it.
  Var gru_unit(std::int64_t j) const {
    Tape& t = l_.tape;
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
    Tape& t = l_.tape;
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

Vars gru(LayerRun& l) {
  return run_steps(l, [](const Step& step, std::int64_t j) { return step.gru_unit(j); });
}

Vars lstm(LayerRun& l) {
  Vars cells(at(l.spec.features));
  return run_steps(
      l, [&](const Step& step, std::int64_t j) { return step.lstm_unit(j, cells[at(j)]); });
}

}  // namespace rematch::rounding
