#include "engine/ops/linear.h"

#include "engine/backend/kernel.h"
#include "engine/cpu/linear.h"
#include "engine/cuda/linear.h"
#include "engine/cuda/sum_rows.h"
#include "engine/ops/support.h"

namespace rematch {
namespace {

class LinearBackward final : public Node {
 public:
  LinearBackward(const Tensor& x, const Tensor& weight, const Tensor& bias)
      : Node(1), batch_(x.shape()[0]), in_(x.shape()[1]), out_(weight.shape()[0]) {
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
    const Tensor& gy = grads_out[0];
    for_floating(gy.dtype(), name(), [&]<class T>() {
      if (needs(0)) {
        const Tensor weight = weight_.get(name());
        grads_in[0] = Tensor::empty({batch_, in_}, gy.dtype());
        REMATCH_KERNEL(gy, linear_grad_input<T>, gy.data<T>(), weight.data<T>(),
                       grads_in[0].data<T>(), batch_, in_, out_);
      }
      if (needs(1)) {
        const Tensor x = x_.get(name());
        grads_in[1] = Tensor::empty({out_, in_}, gy.dtype());
        REMATCH_KERNEL(gy, linear_grad_weight<T>, gy.data<T>(), x.data<T>(), grads_in[1].data<T>(),
                       batch_, in_, out_);
      }
      if (needs(2)) {
        grads_in[2] = Tensor::empty({out_}, gy.dtype());
        REMATCH_KERNEL(gy, sum_rows<T>, gy.data<T>(), grads_in[2].data<T>(), batch_, out_);
      }
    });
  }

 private:
  std::int64_t batch_;
  std::int64_t in_;
  std::int64_t out_;
  SavedTensor x_;
  SavedTensor weight_;
};

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  constexpr std::string_view op = "linear";
  require_rank(op, "input", x, 2);
  require_rank(op, "weight", weight, 2);
  require(x.shape()[1] == weight.shape()[1], op, [&] {
    return "input of width " + std::to_string(weight.shape()[1]) + " expected, got " +
           to_string(x.shape());
  });
  require_same_dtype(op, x, weight);
  if (bias.defined()) {
    require_shape(op, "bias", bias, {weight.shape()[0]});
    require_same_dtype(op, x, bias);
  }
  const std::int64_t n = x.shape()[0];
  const std::int64_t k = x.shape()[1];
  const std::int64_t m = weight.shape()[0];
  Tensor y = compute_one({op, {&x, &weight, &bias}}, [&] {
    Tensor out = Tensor::empty({n, m}, x.dtype());
    for_floating(x.dtype(), op, [&]<class T>() {
      REMATCH_KERNEL(x, linear_forward<T>, x.data<T>(), weight.data<T>(),
                     bias.defined() ? bias.data<T>() : nullptr, out.data<T>(), n, k, m);
    });
    return out;
  });
  record<LinearBackward>(y, {&x, &weight, &bias}, x, weight, bias);
  return y;
}

}  // namespace rematch
