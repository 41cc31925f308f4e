#include "engine/ops/conv2d.h"

#include "engine/kernels/conv2d.h"
#include "engine/ops/device_products.h"
#include "engine/ops/support.h"
#include "engine/tensor/kernel.h"

namespace rematch {
namespace {

// Scratch is the kernel's own business: it is not a tensor of the program, but its bytes count.
Tensor scratch_for(const Conv2dShape& shape, const Tensor& x) {
  return Tensor::empty({REMATCH_KERNEL(x, conv2d_scratch_elements, shape)}, x.dtype());
}

using math::BFloat16;

std::int64_t products_of(const Conv2dShape& s) {
  return s.n * s.out_h() * s.out_w() * s.out_c * s.c * s.kh * s.kw;
}

// As in linear.cpp: bfloat16 operands are upcast for most kernels, and results rounded.
Tensor forward(const Conv2dShape& s, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (multiplies_as_it_is(x, products_of(s))) {
    Tensor y = Tensor::empty({s.n, s.out_c, s.out_h(), s.out_w()}, x.dtype());
    REMATCH_DEVICE_KERNEL(x, conv2d_forward<BFloat16>, s, x.data<BFloat16>(),
                          weight.data<BFloat16>(), bias.defined() ? bias.data<BFloat16>() : nullptr,
                          nullptr, y.data<BFloat16>());
    return y;
  }
  if (is_bfloat16(x)) {
    return cast_values(forward(s, wide_values(x), wide_values(weight), wide_values(bias)),
                       DType::bfloat16);
  }
  Tensor y = Tensor::empty({s.n, s.out_c, s.out_h(), s.out_w()}, x.dtype());
  for_floating(x.dtype(), "conv2d", [&]<class T>() {
    Tensor scratch = scratch_for(s, x);
    REMATCH_KERNEL(x, conv2d_forward<T>, s, x.data<T>(), weight.data<T>(),
                   bias.defined() ? bias.data<T>() : nullptr, scratch.data<T>(), y.data<T>());
  });
  return y;
}

class Conv2dBackward final : public Node {
 public:
  Conv2dBackward(const Conv2dShape& shape, const Tensor& x, const Tensor& weight,
                 const Tensor& bias)
      : Node(1), shape_(shape) {
    connect(*this, {&x, &weight, &bias});
    if (needs(1)) x_.save(x);
    if (needs(0)) weight_.save(weight);
  }
  std::string_view name() const override { return "Conv2dBackward"; }
  void release() noexcept override {
    x_.reset();
    weight_.reset();
  }
  void vjp(std::span<Tensor> grads_out, std::span<Tensor> grads_in) override {
    const DType dtype = grads_out[0].dtype();
    if (multiplies_as_it_is(grads_out[0], products_of(shape_))) {
      multiply_as_it_is(grads_out[0], grads_in);
      if (needs(2)) {
        grads_in[2] = cast_values(bias_gradient(wide_values(std::move(grads_out[0]))), dtype);
      }
      return;
    }
    const Tensor gy = wide_values(std::move(grads_out[0]));
    const auto& s = shape_;
    for_floating(gy.dtype(), name(), [&]<class T>() {
      // Scratch comes last: a recomputation behind a saved tensor is not to run beside it.
      if (needs(0)) {
        const Tensor weight = wide_values(weight_.get(name()));
        Tensor scratch = scratch_for(s, gy);
        grads_in[0] = Tensor::empty({s.n, s.c, s.h, s.w}, gy.dtype());
        REMATCH_KERNEL(gy, conv2d_grad_input<T>, s, gy.data<T>(), weight.data<T>(),
                       scratch.data<T>(), grads_in[0].data<T>());
        grads_in[0] = cast_values(std::move(grads_in[0]), dtype);
      }
      if (needs(1)) {
        const Tensor x = wide_values(x_.get(name()));
        Tensor scratch = scratch_for(s, gy);
        grads_in[1] = Tensor::empty({s.out_c, s.c, s.kh, s.kw}, gy.dtype());
        REMATCH_KERNEL(gy, conv2d_grad_weight<T>, s, gy.data<T>(), x.data<T>(), scratch.data<T>(),
                       grads_in[1].data<T>());
        grads_in[1] = cast_values(std::move(grads_in[1]), dtype);
      }
    });
    if (needs(2)) grads_in[2] = cast_values(bias_gradient(gy), dtype);
  }

 private:
  Tensor bias_gradient(const Tensor& gy) const {
    Tensor sums = Tensor::empty({shape_.out_c}, gy.dtype());
    for_floating(gy.dtype(), name(), [&]<class T>() {
      REMATCH_KERNEL(gy, conv2d_grad_bias<T>, shape_, gy.data<T>(), sums.data<T>());
    });
    return sums;
  }
  void multiply_as_it_is(const Tensor& gy, std::span<Tensor> grads_in) {
    const auto& s = shape_;
    if (needs(0)) {
      const Tensor weight = weight_.get(name());
      grads_in[0] = Tensor::empty({s.n, s.c, s.h, s.w}, gy.dtype());
      REMATCH_DEVICE_KERNEL(gy, conv2d_grad_input, s, gy.data<BFloat16>(), weight.data<BFloat16>(),
                            static_cast<BFloat16*>(nullptr), grads_in[0].data<BFloat16>());
    }
    if (needs(1)) {
      const Tensor x = x_.get(name());
      grads_in[1] = Tensor::empty({s.out_c, s.c, s.kh, s.kw}, gy.dtype());
      REMATCH_DEVICE_KERNEL(gy, conv2d_grad_weight, s, gy.data<BFloat16>(), x.data<BFloat16>(),
                            static_cast<BFloat16*>(nullptr), grads_in[1].data<BFloat16>());
    }
  }

  Conv2dShape shape_;
  SavedTensor x_;
  SavedTensor weight_;
};

/// `call` is of the operands as they were given, x, weight and bias are what autocast made of them.
Tensor apply(OpCall call, const Conv2dShape& shape, const Tensor& x, const Tensor& weight,
             const Tensor& bias) {
  require_same_dtype(call.op, x, weight);
  if (bias.defined()) require_same_dtype(call.op, x, bias);
  call.computes_in = x.dtype();
  Tensor y = compute_one(call, [&] { return forward(shape, x, weight, bias); });
  record<Conv2dBackward>(y, {&x, &weight, &bias}, shape, x, weight, bias);
  return y;
}

}  // namespace

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, std::int64_t stride,
              std::int64_t padding) {
  constexpr std::string_view op = "conv2d";
  require_rank(op, "input", x, 4);
  require_rank(op, "weight", weight, 4);
  require(stride >= 1 && padding >= 0, op, [&] {
    return "stride >= 1 and padding >= 0 expected, got " + std::to_string(stride) + " and " +
           std::to_string(padding);
  });
  require(x.shape()[1] == weight.shape()[1], op, [&] {
    return "input with " + std::to_string(weight.shape()[1]) + " channels expected, got " +
           to_string(x.shape());
  });
  const Conv2dShape s{x.shape()[0],
                      x.shape()[1],
                      x.shape()[2],
                      x.shape()[3],
                      weight.shape()[0],
                      weight.shape()[2],
                      weight.shape()[3],
                      stride,
                      stride,
                      padding,
                      padding};
  require(s.h + 2 * padding >= s.kh && s.w + 2 * padding >= s.kw, op, [&] {
    return "kernel " + std::to_string(s.kh) + " x " + std::to_string(s.kw) +
           " does not fit the input " + to_string(x.shape()) + " padded by " +
           std::to_string(padding);
  });
  if (bias.defined()) require_shape(op, "bias", bias, {s.out_c});
  const OpCall call{op, {&x, &weight, &bias}, attributes(stride, padding)};
  if (ambient().autocast.enabled) {
    // One after the other: the casts are nodes, and their order is that of the backward.
    const Tensor low_x = autocast_input(x);
    const Tensor low_weight = autocast_parameter(weight);
    return apply(call, s, low_x, low_weight, autocast_parameter(bias));
  }
  return apply(call, s, x, weight, bias);
}

}  // namespace rematch
