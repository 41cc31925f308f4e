#include "engine/ops/spectral_norm.h"

#include <optional>

#include "engine/kernels/delayed_scaling.h"
#include "engine/kernels/linear.h"
#include "engine/kernels/spectral_norm.h"
#include "engine/ops/support.h"
#include "engine/tensor/kernel.h"
#include "engine/tensor/state_reader.h"

namespace rematch {
namespace {

constexpr double kShortest = 1e-12;

void copy_values(const Tensor& from, const Tensor& to) {
  to.storage()->memory().copy(to.raw(), from.raw(), from.bytes());
}

/// Results of a forward.
struct Results {
  Tensor y;
  Tensor normalised;
  Tensor u;
  Tensor v;
  Tensor sigma;
};

/// One step from `u`.
template <class T>
void iterate(const Tensor& weight, const Tensor& u, Results& to) {
  const std::int64_t m = weight.shape()[0];
  const std::int64_t k = weight.shape()[1];
  const auto eps = static_cast<T>(kShortest);
  T* const none = nullptr;
  REMATCH_KERNEL(weight, column_products<T>, m, k, weight.data<T>(), u.data<T>(), to.v.data<T>());
  REMATCH_KERNEL(weight, normalise_vector<T>, k, eps, to.v.data<T>(), none);
  REMATCH_KERNEL(weight, row_products<T>, m, k, weight.data<T>(), to.v.data<T>(), to.u.data<T>());
  REMATCH_KERNEL(weight, normalise_vector<T>, m, eps, to.u.data<T>(), to.sigma.data<T>());
}

/// No step.
template <class T>
void measure(const Tensor& weight, const Tensor& u, const Tensor& v, Results& to) {
  const std::int64_t m = weight.shape()[0];
  const std::int64_t k = weight.shape()[1];
  REMATCH_KERNEL(weight, row_products<T>, m, k, weight.data<T>(), v.data<T>(), to.u.data<T>());
  REMATCH_KERNEL(weight, inner_product<T>, m, u.data<T>(), to.u.data<T>(), to.sigma.data<T>());
  copy_values(u, to.u);
  copy_values(v, to.v);
}

class SpectralNormBackward final : public Node {
 public:
  SpectralNormBackward(const Tensor& x, const Tensor& weight, const Tensor& bias,
                       const Results& made)
      : Node(1), shape_(x.shape()), out_(weight.shape()[0]), in_(weight.shape()[1]) {
    connect(*this, {&x, &weight, &bias});
    if (needs(1)) x_.save(x);
    normalised_.save(made.normalised);
    u_.save(made.u);
    v_.save(made.v);
    sigma_.save(made.sigma);
  }
  std::string_view name() const override { return "SpectralNormBackward"; }
  void release() noexcept override {
    for (SavedTensor* saved : {&x_, &normalised_, &u_, &v_, &sigma_}) saved->reset();
  }
  void vjp(std::span<Tensor> grads_out, std::span<Tensor> grads_in) override {
    const Tensor& gy = grads_out[0];
    const Tensor x = needs(1) ? x_.get(name()) : Tensor();
    const Tensor normalised = normalised_.get(name());
    const Tensor u = u_.get(name());
    const Tensor v = v_.get(name());
    const Tensor sigma = sigma_.get(name());
    const std::int64_t rows = gy.elements() / out_;
    for_floating(gy.dtype(), name(), [&]<class T>() {
      if (needs(0)) {
        grads_in[0] = Tensor::empty(shape_, gy.dtype());
        REMATCH_KERNEL(gy, linear_grad_input<T>, gy.data<T>(), normalised.data<T>(),
                       grads_in[0].data<T>(), rows, in_, out_);
      }
      if (needs(1)) {
        grads_in[1] = Tensor::empty({out_, in_}, gy.dtype());
        T* const gw = grads_in[1].data<T>();
        REMATCH_KERNEL(gy, linear_grad_weight<T>, gy.data<T>(), x.data<T>(), gw, rows, in_, out_);
        REMATCH_KERNEL(gy, spectral_norm_backward<T>, out_, in_, normalised.data<T>(), u.data<T>(),
                       v.data<T>(), sigma.data<T>(), gw);
      }
      if (needs(2)) {
        grads_in[2] = Tensor::empty({out_}, gy.dtype());
        REMATCH_KERNEL(gy, sum_rows<T>, gy.data<T>(), grads_in[2].data<T>(), rows, out_);
      }
    });
  }

 private:
  Shape shape_;
  std::int64_t out_;
  std::int64_t in_;
  SavedTensor x_;
  SavedTensor normalised_;
  SavedTensor u_;
  SavedTensor v_;
  SavedTensor sigma_;
};

void check_operands(std::string_view op, const Tensor& x, const Tensor& weight, const Tensor& bias,
                    const Tensor& u, const Tensor& v) {
  require(x.shape().rank() >= 2, op,
          [&] { return "input of rank 2 or more expected, got " + to_string(x.shape()); });
  require_rank(op, "weight", weight, 2);
  require(weight.elements() > 0, op,
          [&] { return "weight with elements expected, got " + to_string(weight.shape()); });
  const int last = x.shape().rank() - 1;
  require(x.shape()[last] == weight.shape()[1], op, [&] {
    return "input of width " + std::to_string(weight.shape()[1]) + " expected, got " +
           to_string(x.shape());
  });
  if (bias.defined()) require_shape(op, "bias", bias, {weight.shape()[0]});
  require_shape(op, "u", u, {weight.shape()[0]});
  require_shape(op, "v", v, {weight.shape()[1]});
  for (const Tensor* t : {&weight, &bias, &u, &v}) {
    if (t->defined()) require_same_dtype(op, x, *t);
  }
}

}  // namespace

Tensor spectral_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor& u,
                     Tensor& v, bool train) {
  constexpr std::string_view op = "spectral_norm";
  if (is_bfloat16(x) || is_bfloat16(weight) || is_bfloat16(bias)) {
    return spectral_norm(upcast(x), upcast(weight), upcast(bias), u, v, train);
  }
  check_operands(op, x, weight, bias, u, v);
  // Evaluation changes neither, so that they are operands like any others.
  static const Tensor kUnread;
  std::optional<StateRead> from;
  if (train) from.emplace(u);
  // The forward has already taken this step.
  const bool update = train && !ambient().recomputing;
  if (update) {
    u.storage()->before_write();
    v.storage()->before_write();
  }
  const OpCall call{
      op, {&x, &weight, &bias, train ? &kUnread : &u, train ? &kUnread : &v}, attributes(train)};
  const std::int64_t m = weight.shape()[0];
  const std::int64_t k = weight.shape()[1];
  const auto compute_all = [&] {
    Results to{Tensor::empty(x.shape().with_extent(x.shape().rank() - 1, m), x.dtype()),
               Tensor::empty({m, k}, x.dtype()), Tensor::empty({m}, x.dtype()),
               Tensor::empty({k}, x.dtype()), Tensor::empty({1}, x.dtype())};
    for_floating(x.dtype(), op, [&]<class T>() {
      if (train) {
        iterate<T>(weight, from->value, to);
      } else {
        measure<T>(weight, u, v, to);
      }
      REMATCH_KERNEL(x, divide_by<T>, m * k, weight.data<T>(), to.sigma.data<T>(),
                     to.normalised.data<T>());
      REMATCH_KERNEL(x, linear_forward<T>, x.data<T>(), to.normalised.data<T>(),
                     bias.defined() ? bias.data<T>() : nullptr, to.y.data<T>(), x.elements() / k, k,
                     m);
    });
    return std::array<Tensor, 5>{to.y, to.normalised, to.u, to.v, to.sigma};
  };
  auto made = compute(call, compute_all);
  Results results{made[0], made[1], made[2], made[3], made[4]};
  if (update) {
    copy_values(results.u, u);
    copy_values(results.v, v);
    u.storage()->bump_version();
    v.storage()->bump_version();
  }
  record<SpectralNormBackward>(results.y, {&x, &weight, &bias}, x, weight, bias, results);
  return results.y;
}

}  // namespace rematch
