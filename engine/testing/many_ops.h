#pragma once

// Ops of as many operands and results as a test wants: those of the engine have a handful.

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "engine/ops/activation.h"
#include "engine/ops/noise.h"
#include "engine/ops/support.h"

namespace rematch::testing {

namespace detail {

class FanBackward final : public Node {
 public:
  explicit FanBackward(const Tensors& operands) : Node(1) {
    for (const Tensor& t : operands) edges.push_back(gradient_edge(t));
  }
  std::string_view name() const override { return "FanBackward"; }
  void vjp(std::span<Tensor> grads_out, std::span<Tensor> grads_in) override {
    for (Tensor& g : grads_in) g = grads_out[0];
  }
};

/// d x^i / dx = i x^(i-1), from the saved results.
class PowersBackward final : public Node {
 public:
  PowersBackward(const Tensor& x, std::span<const Tensor> results)
      : Node(static_cast<int>(results.size())), saved_(results.size()) {
    connect(*this, {&x});
    for (std::size_t i = 0; i < results.size(); ++i) saved_[i].save(results[i]);
  }
  std::string_view name() const override { return "PowersBackward"; }
  void release() noexcept override { saved_.clear(); }
  void vjp(std::span<Tensor> grads_out, std::span<Tensor> grads_in) override {
    double gradient = 0;
    for (std::size_t i = 0; i < saved_.size(); ++i) {
      const double below = i == 0 ? 1 : saved_[i - 1].get(name()).item();
      if (!grads_out[i].defined()) continue;
      gradient += static_cast<double>(i + 1) * below * grads_out[i].item();
    }
    saved_.back().get(name());
    grads_in[0] = Tensor::full({1}, DType::float64, gradient);
  }

 private:
  std::vector<SavedTensor> saved_;
};

/// d / dx_i = (i + 1) x_i.
class SquaresBackward final : public Node {
 public:
  explicit SquaresBackward(std::span<const Tensor> operands) : Node(1), saved_(operands.size()) {
    for (std::size_t i = 0; i < operands.size(); ++i) {
      edges.push_back(gradient_edge(operands[i]));
      if (needs(i)) saved_[i].save(operands[i]);
    }
  }
  std::string_view name() const override { return "SquaresBackward"; }
  void release() noexcept override { saved_.clear(); }
  void vjp(std::span<Tensor> grads_out, std::span<Tensor> grads_in) override {
    for (std::size_t i = 0; i < saved_.size(); ++i) {
      if (!needs(i)) continue;
      const double x = saved_[i].get(name()).item();
      grads_in[i] =
          Tensor::full({1}, DType::float64, static_cast<double>(i + 1) * x * grads_out[0].item());
    }
  }

 private:
  std::vector<SavedTensor> saved_;
};

template <std::size_t... I>
Tensor squares(const std::array<Tensor, sizeof...(I)>& x, std::index_sequence<I...> /*all*/) {
  Tensor y = compute_one({"squares", {&x[I]...}}, [&] {
    double sum = 0;
    ((sum += static_cast<double>(I + 1) * x[I].item() * x[I].item() / 2), ...);
    return Tensor::full({1}, DType::float64, sum);
  });
  if (should_record({&x[I]...})) set_history(y, std::make_shared<SquaresBackward>(x));
  return y;
}

}  // namespace detail

/// A tensor of one element whose node hands the gradient that comes to each of the operands.
inline Tensor fan(const Tensors& operands) {
  Tensor y = Tensor::ones({1}, DType::float64);
  set_history(y, std::make_shared<detail::FanBackward>(operands));
  return y;
}

/// x, x^2, ..., x^N by one op and one node; x is float64 and has one element. Saves its results.
template <std::size_t N>
std::array<Tensor, N> powers(const Tensor& x) {
  std::array<Tensor, N> y = compute({"powers", {&x}}, [&] {
    std::array<Tensor, N> out;
    double power = 1;
    for (Tensor& t : out) t = Tensor::full({1}, DType::float64, power *= x.item());
    return out;
  });
  if (should_record({&x})) {
    auto node = std::make_shared<detail::PowersBackward>(x, y);
    for (std::size_t i = 0; i < N; ++i) set_history(y[i], node, static_cast<int>(i));
  }
  return y;
}

/// The sum of (i + 1) x_i^2 / 2 by one op of N operands, float64 of one element each. Saves those
/// that require grad.
template <std::size_t N>
Tensor squares(const std::array<Tensor, N>& x) {
  return detail::squares(x, std::make_index_sequence<N>());
}

/// A chain of n ops: two tanh, then a draw that leaves no element 0, and so on.
inline Tensor chain(std::size_t n, Tensor y) {
  for (std::size_t i = 0; i < n; ++i) y = i % 3 == 2 ? rrelu(y, 0.75, 1.25) : tanh(y);
  return y;
}

/// Calls body.operator()<N>() with `n` as a constant; 2, 5, 17, 65 and 257 are known.
template <class Body>
void with_count(int n, Body&& body) {
  switch (n) {
    case 2:
      return body.template operator()<2>();
    case 5:
      return body.template operator()<5>();
    case 17:
      return body.template operator()<17>();
    case 65:
      return body.template operator()<65>();
    case 257:
      return body.template operator()<257>();
    default:
      throw std::invalid_argument("a count that with_count() knows expected");
  }
}

}  // namespace rematch::testing
