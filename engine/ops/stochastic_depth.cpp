#include "engine/ops/stochastic_depth.h"

#include "engine/kernels/random.h"
#include "engine/kernels/stochastic_depth.h"
#include "engine/ops/draw.h"
#include "engine/ops/support.h"
#include "engine/tensor/kernel.h"

namespace rematch {
namespace {

using math::DepthShape;

class BranchBackward final : public Node {
 public:
  /// `factors` is undefined if every sample takes the branch.
  BranchBackward(std::string_view name, const DepthShape& s, const Tensor& x, const Tensor& weight,
                 const Tensor& factors)
      : Node(1), name_(name), s_(s), shape_(x.shape()), some_skip_(factors.defined()) {
    connect(*this, {&x, &weight});
    if (needs(1)) x_.save(x);
    if (needs(0)) weight_.save(weight);
    if (some_skip_) factors_.save(factors);
  }
  std::string_view name() const override { return name_; }
  void release() noexcept override {
    for (SavedTensor* t : {&x_, &weight_, &factors_}) t->reset();
  }
  void vjp(std::span<Tensor> grads_out, std::span<Tensor> grads_in) override {
    const Tensor& gy = grads_out[0];
    const Tensor x = needs(1) ? x_.get(name()) : Tensor();
    const Tensor weight = needs(0) ? weight_.get(name()) : Tensor();
    const Tensor factors = some_skip_ ? factors_.get(name()) : Tensor();
    if (needs(0)) grads_in[0] = Tensor::empty(shape_, gy.dtype());
    if (needs(1)) grads_in[1] = Tensor::empty({s_.features, s_.features}, gy.dtype());
    for_floating(gy.dtype(), name(), [&]<class T>() {
      REMATCH_KERNEL(gy, stochastic_depth_backward<T>, s_, gy.data<T>(), data_of<T>(x),
                     data_of<T>(weight), data_of<T>(factors),
                     needs(0) ? grads_in[0].data<T>() : nullptr,
                     needs(1) ? grads_in[1].data<T>() : nullptr);
    });
  }

 private:
  std::string_view name_;
  DepthShape s_;
  Shape shape_;
  bool some_skip_;
  SavedTensor x_;
  SavedTensor weight_;
  SavedTensor factors_;
};

DepthShape shape_of(std::string_view op, const Tensor& x, const Tensor& weight) {
  require_floating(op, x);
  const int rank = x.shape().rank();
  require(rank >= 2, op,
          [&] { return "input of rank 2 or more expected, got " + to_string(x.shape()); });
  DepthShape s{.samples = x.shape()[0], .features = x.shape()[rank - 1]};
  for (int i = 1; i + 1 < rank; ++i) s.rows_of_sample *= x.shape()[i];
  require_shape(op, "weight", weight, {s.features, s.features});
  require_same_dtype(op, x, weight);
  return s;
}

Tensor branch(const DepthShape& s, const Tensor& x, const Tensor& weight, const Tensor& factors) {
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  for_floating(x.dtype(), "branch", [&]<class T>() {
    REMATCH_KERNEL(x, stochastic_depth_forward<T>, s, x.data<T>(), weight.data<T>(),
                   data_of<T>(factors), y.data<T>());
  });
  return y;
}

}  // namespace

Tensor stochastic_depth(const Tensor& x, const Tensor& weight, double p,
                        const RandomOptions& options) {
  constexpr std::string_view op = "stochastic_depth";
  constexpr std::string_view node = "StochasticDepthBackward";
  require(p >= 0 && p < 1, op,
          [&] { return "probability in [0, 1) expected, got " + std::to_string(p); });
  if (is_bfloat16(x) || is_bfloat16(weight)) {
    const Tensor wide = upcast(x);
    return stochastic_depth(wide, upcast(weight), p, options);
  }
  const DepthShape s = shape_of(op, x, weight);
  const bool draws = options.train && p > 0;
  const OpCall call{op, {&x, &weight}, attributes(draws ? p : 0.0, options.stream)};
  if (!draws) {
    Tensor y = compute_one(call, [&] { return branch(s, x, weight, {}); });
    record<BranchBackward>(y, {&x, &weight}, node, s, x, weight, Tensor());
    return y;
  }
  auto [y, factors] = compute_draw(call, s.samples, options.stream, [&](const Generator& g) {
    Tensor drawn = Tensor::empty({s.samples}, x.dtype());
    for_floating(x.dtype(), op, [&]<class T>() {
      REMATCH_KERNEL(x, dropout_factors<T>, s.samples, p, g.seed, g.stream, g.offset,
                     drawn.data<T>());
    });
    report_draw(g, drawn);
    return std::array<Tensor, 2>{branch(s, x, weight, drawn), drawn};
  });
  record<BranchBackward>(y, {&x, &weight}, node, s, x, weight, factors);
  return y;
}

Tensor early_exit(const Tensor& x, const Tensor& weight) {
  constexpr std::string_view op = "early_exit";
  if (is_bfloat16(x) || is_bfloat16(weight)) {
    const Tensor wide = upcast(x);
    return early_exit(wide, upcast(weight));
  }
  const DepthShape s = shape_of(op, x, weight);
  auto [y, factors] = compute({op, {&x, &weight}}, [&] {
    Tensor decided = Tensor::empty({s.samples}, x.dtype());
    for_floating(x.dtype(), op, [&]<class T>() {
      REMATCH_KERNEL(x, exit_factors<T>, s, x.data<T>(), decided.data<T>());
    });
    return std::array<Tensor, 2>{branch(s, x, weight, decided), decided};
  });
  record<BranchBackward>(y, {&x, &weight}, "EarlyExitBackward", s, x, weight, factors);
  return y;
}

}  // namespace rematch
