#include "engine/ops/linear.h"

#include "engine/kernels/linear.h"
#include "engine/ops/device_products.h"
#include "engine/ops/support.h"
#include "engine/tensor/kernel.h"

namespace rematch {
namespace {

// Most kernels know no bfloat16: such operands are upcast for them, into memory that is theirs
// while they run, and what they computed is rounded. Large products on a device do know it.

using math::BFloat16;

/// All but the last dimension count as rows.
std::int64_t rows_of(const Shape& shape) {
  std::int64_t rows = 1;
  for (int i = 0; i + 1 < shape.rank(); ++i) rows *= shape[i];
  return rows;
}

Tensor forward(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const std::int64_t k = weight.shape()[1];
  const std::int64_t m = weight.shape()[0];
  const std::int64_t n = rows_of(x.shape());
  const Shape shape = x.shape().with_extent(x.shape().rank() - 1, m);
  if (multiplies_as_it_is(x, n * k * m)) {
    Tensor y = Tensor::empty(shape, x.dtype());
    REMATCH_DEVICE_KERNEL(x, linear_forward<BFloat16>, x.data<BFloat16>(), weight.data<BFloat16>(),
                          bias.defined() ? bias.data<BFloat16>() : nullptr, y.data<BFloat16>(), n,
                          k, m);
    return y;
  }
  if (is_bfloat16(x)) {
    return cast_values(forward(wide_values(x), wide_values(weight), wide_values(bias)),
                       DType::bfloat16);
  }
  Tensor y = Tensor::empty(shape, x.dtype());
  for_floating(x.dtype(), "linear", [&]<class T>() {
    REMATCH_KERNEL(x, linear_forward<T>, x.data<T>(), weight.data<T>(),
                   bias.defined() ? bias.data<T>() : nullptr, y.data<T>(), n, k, m);
  });
  return y;
}

class LinearBackward final : public Node {
 public:
  LinearBackward(const Tensor& x, const Tensor& weight, const Tensor& bias)
      : Node(1),
        shape_(x.shape()),
        batch_(rows_of(x.shape())),
        in_(weight.shape()[1]),
        out_(weight.shape()[0]) {
    connect(*this, {&x, &weight, &bias});
    if (needs(1)) x_.save(x);
    if (needs(0)) weight_.save(weight);
  }
  std::string_view name() const override { return "LinearBackward"; }
  void release() noexcept override {
    x_.reset();
    weight_.reset();
  }
  void vjp(std::span<Tensor> grads_out, std::span<Tensor> grads_in) override {
    const DType dtype = grads_out[0].dtype();
    if (multiplies_as_it_is(grads_out[0], batch_ * in_ * out_)) {
      multiply_as_it_is(grads_out[0], grads_in);
      if (needs(2)) {
        grads_in[2] = cast_values(bias_gradient(wide_values(std::move(grads_out[0]))), dtype);
      }
      return;
    }
    const Tensor gy = wide_values(std::move(grads_out[0]));
    for_floating(gy.dtype(), name(), [&]<class T>() {
      if (needs(0)) {
        const Tensor weight = wide_values(weight_.get(name()));
        grads_in[0] = Tensor::empty(shape_, gy.dtype());
        REMATCH_KERNEL(gy, linear_grad_input<T>, gy.data<T>(), weight.data<T>(),
                       grads_in[0].data<T>(), batch_, in_, out_);
        grads_in[0] = cast_values(std::move(grads_in[0]), dtype);
      }
      if (needs(1)) {
        const Tensor x = wide_values(x_.get(name()));
        grads_in[1] = Tensor::empty({out_, in_}, gy.dtype());
        REMATCH_KERNEL(gy, linear_grad_weight<T>, gy.data<T>(), x.data<T>(), grads_in[1].data<T>(),
                       batch_, in_, out_);
        grads_in[1] = cast_values(std::move(grads_in[1]), dtype);
      }
    });
    if (needs(2)) grads_in[2] = cast_values(bias_gradient(gy), dtype);
  }

 private:
  Tensor bias_gradient(const Tensor& gy) const {
    Tensor sums = Tensor::empty({out_}, gy.dtype());
    for_floating(gy.dtype(), name(), [&]<class T>() {
      REMATCH_KERNEL(gy, sum_rows<T>, gy.data<T>(), sums.data<T>(), batch_, out_);
    });
    return sums;
  }
  void multiply_as_it_is(const Tensor& gy, std::span<Tensor> grads_in) {
    if (needs(0)) {
      const Tensor weight = weight_.get(name());
      grads_in[0] = Tensor::empty(shape_, gy.dtype());
      REMATCH_DEVICE_KERNEL(gy, linear_grad_input, gy.data<BFloat16>(), weight.data<BFloat16>(),
                            grads_in[0].data<BFloat16>(), batch_, in_, out_);
    }
    if (needs(1)) {
      const Tensor x = x_.get(name());
      grads_in[1] = Tensor::empty({out_, in_}, gy.dtype());
      REMATCH_DEVICE_KERNEL(gy, linear_grad_weight, gy.data<BFloat16>(), x.data<BFloat16>(),
                            grads_in[1].data<BFloat16>(), batch_, in_, out_);
    }
  }

  Shape shape_;
  std::int64_t batch_;
  std::int64_t in_;
  std::int64_t out_;
  SavedTensor x_;
  SavedTensor weight_;
};

/// `call` is of the operands as they were given, x, weight and bias are what autocast made of them.
Tensor apply(OpCall call, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  require_same_dtype(call.op, x, weight);
  if (bias.defined()) require_same_dtype(call.op, x, bias);
  call.computes_in = x.dtype();
  Tensor y = compute_one(call, [&] { return forward(x, weight, bias); });
  record<LinearBackward>(y, {&x, &weight, &bias}, x, weight, bias);
  return y;
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  constexpr std::string_view op = "linear";
  require(x.shape().rank() >= 2, op,
          [&] { return "input of rank 2 or more expected, got " + to_string(x.shape()); });
  require_rank(op, "weight", weight, 2);
  require(x.shape()[x.shape().rank() - 1] == weight.shape()[1], op, [&] {
    return "input of width " + std::to_string(weight.shape()[1]) + " expected, got " +
           to_string(x.shape());
  });
  if (bias.defined()) require_shape(op, "bias", bias, {weight.shape()[0]});
  const OpCall call{op, {&x, &weight, &bias}};
  if (ambient().autocast.enabled) {
    // One after the other: the casts are nodes, and their order is that of the backward.
    const Tensor low_x = autocast_input(x);
    const Tensor low_weight = autocast_parameter(weight);
    return apply(call, low_x, low_weight, autocast_parameter(bias));
  }
  return apply(call, x, weight, bias);
}

}  // namespace rematch
