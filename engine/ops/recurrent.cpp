#include "engine/ops/recurrent.h"

#include "engine/kernels/recurrent.h"
#include "engine/ops/support.h"
#include "engine/tensor/kernel.h"

namespace rematch {
namespace {

using math::Cell;
using math::RecurrentShape;

constexpr std::string_view name_of(Cell cell) { return cell == Cell::gru ? "gru" : "lstm"; }

template <typename T>
math::RecurrentWeights<T> weights_of(const RecurrentParameters& p) {
  return {data_of<T>(p.input), data_of<T>(p.hidden), data_of<T>(p.input_bias),
          data_of<T>(p.hidden_bias)};
}

/// Tensors that the backward needs beside operands and states; a GRU has no cells.
struct RecurrentKept {
  Tensor gates;
  Tensor cells;

  template <typename T>
  math::RecurrentState<T> state() {
    return {gates.data<T>(), data_of<T>(cells)};
  }
};

class RecurrentBackward final : public Node {
 public:
  RecurrentBackward(const RecurrentShape& shape, const Tensor& x, const RecurrentParameters& p,
                    const Tensor& y, const RecurrentKept& kept)
      : Node(1), shape_(shape) {
    connect(*this, {&x, &p.input, &p.hidden, &p.input_bias, &p.hidden_bias});
    if (wants_parameters()) x_.save(x);
    if (needs(0)) input_.save(p.input);
    hidden_.save(p.hidden);
    y_.save(y);
    gates_.save(kept.gates);
    if (is_lstm()) cells_.save(kept.cells);
  }
  std::string_view name() const override { return is_lstm() ? "LstmBackward" : "GruBackward"; }
  void release() noexcept override {
    for (SavedTensor* t : {&x_, &input_, &hidden_, &y_, &gates_, &cells_}) t->reset();
  }
  void vjp(std::span<Tensor> grads_out, std::span<Tensor> grads_in) override {
    const Tensor& gy = grads_out[0];
    const Tensor x = wants_parameters() ? x_.get(name()) : Tensor();
    RecurrentParameters p;
    if (needs(0)) p.input = input_.get(name());
    p.hidden = hidden_.get(name());
    const Tensor y = y_.get(name());
    RecurrentKept kept{gates_.get(name()), {}};
    if (is_lstm()) kept.cells = cells_.get(name());
    const std::int64_t rows = shape_.rows();
    const Shape shapes[] = {{shape_.batch, shape_.steps, shape_.width},
                            {rows, shape_.width},
                            {rows, shape_.features},
                            {rows},
                            {rows}};
    for (std::size_t i = 0; i < 5; ++i) {
      if (needs(i)) grads_in[i] = Tensor::empty(shapes[i], gy.dtype());
    }
    for_floating(gy.dtype(), name(), [&]<class T>() {
      const auto to = [&](std::size_t i) { return data_of<T>(grads_in[i]); };
      const math::RecurrentGradients<T> gradients{to(0), to(1), to(2), to(3), to(4)};
      REMATCH_KERNEL(gy, recurrent_backward<T>, shape_, gy.data<T>(), data_of<T>(x),
                     weights_of<T>(p), y.data<T>(), kept.state<T>(), gradients);
    });
  }

 private:
  bool is_lstm() const { return shape_.cell == Cell::lstm; }
  bool wants_parameters() const { return needs(1) || needs(2) || needs(3) || needs(4); }

  RecurrentShape shape_;
  SavedTensor x_;
  SavedTensor input_;
  SavedTensor hidden_;
  SavedTensor y_;
  SavedTensor gates_;
  SavedTensor cells_;
};

RecurrentShape shape_of(Cell cell, const Tensor& x, const RecurrentParameters& p) {
  const std::string_view op = name_of(cell);
  require_rank(op, "input", x, 3);
  require_rank(op, "hidden weight", p.hidden, 2);
  for (const Tensor* t : {&x, &p.hidden}) {
    require(t->elements() > 0, op, [&] {
      return "an input and a hidden weight with elements expected, got " + to_string(t->shape());
    });
  }
  RecurrentShape s{.cell = cell,
                   .batch = x.shape()[0],
                   .steps = x.shape()[1],
                   .width = x.shape()[2],
                   .features = p.hidden.shape()[1]};
  require_shape(op, "hidden weight", p.hidden, {s.rows(), s.features});
  require_shape(op, "input weight", p.input, {s.rows(), s.width});
  require(p.input_bias.defined() == p.hidden_bias.defined(), op,
          [] { return std::string("two biases or none expected, got one"); });
  for (const Tensor* bias : {&p.input_bias, &p.hidden_bias}) {
    if (bias->defined()) require_shape(op, "bias", *bias, {s.rows()});
  }
  for (const Tensor* t : {&p.input, &p.hidden, &p.input_bias, &p.hidden_bias}) {
    if (t->defined()) require_same_dtype(op, x, *t);
  }
  return s;
}

Tensor recurrent(Cell cell, const Tensor& x, const RecurrentParameters& p) {
  if (is_bfloat16(x) || is_bfloat16(p.input)) {
    const Tensor wide = upcast(x);
    const Tensor input = upcast(p.input);
    const Tensor hidden = upcast(p.hidden);
    const Tensor input_bias = upcast(p.input_bias);
    return recurrent(cell, wide, {input, hidden, input_bias, upcast(p.hidden_bias)});
  }
  const RecurrentShape s = shape_of(cell, x, p);
  const Shape states{s.batch, s.steps, s.features};
  const auto run = [&](Tensor& y, RecurrentKept kept) {
    for_floating(x.dtype(), name_of(cell), [&]<class T>() {
      REMATCH_KERNEL(x, recurrent_forward<T>, s, x.data<T>(), weights_of<T>(p), kept.state<T>(),
                     y.data<T>());
    });
  };
  const auto made = [&](std::int64_t width) {
    return Tensor::empty(states.with_extent(2, width), x.dtype());
  };
  const OpCall call{name_of(cell), {&x, &p.input, &p.hidden, &p.input_bias, &p.hidden_bias}};
  Tensor y;
  RecurrentKept kept;
  if (cell == Cell::gru) {
    std::array<Tensor, 2> out = compute(call, [&] {
      std::array<Tensor, 2> results{made(s.features), made(s.kept())};
      run(results[0], {results[1], {}});
      return results;
    });
    y = out[0];
    kept = {out[1], {}};
  } else {
    std::array<Tensor, 3> out = compute(call, [&] {
      std::array<Tensor, 3> results{made(s.features), made(s.kept()), made(s.features)};
      run(results[0], {results[1], results[2]});
      return results;
    });
    y = out[0];
    kept = {out[1], out[2]};
  }
  record<RecurrentBackward>(y, {&x, &p.input, &p.hidden, &p.input_bias, &p.hidden_bias}, s, x, p, y,
                            kept);
  return y;
}

}  // namespace

Tensor gru(const Tensor& x, const RecurrentParameters& parameters) {
  return recurrent(Cell::gru, x, parameters);
}

Tensor lstm(const Tensor& x, const RecurrentParameters& parameters) {
  return recurrent(Cell::lstm, x, parameters);
}

}  // namespace rematch
