#include "engine/ops/layer_norm.h"

#include "engine/backend/kernel.h"
#include "engine/cpu/layer_norm.h"
#include "engine/cuda/layer_norm.h"
#include "engine/ops/support.h"

namespace rematch {
namespace {

class LayerNormBackward final : public Node {
 public:
  LayerNormBackward(std::int64_t rows, std::int64_t cols, const Tensor& x, const Tensor& weight,
                    const Tensor& bias, const Tensor& mean, const Tensor& rstd)
      : Node(1), rows_(rows), cols_(cols), shape_(x.shape()) {
    connect(*this, {&x, &weight, &bias});
    x_.save(x);
    mean_.save(mean);
    rstd_.save(rstd);
    if (needs(0)) weight_.save(weight);
  }
  std::string_view name() const override { return "LayerNormBackward"; }
  void release() noexcept override {
    x_.reset();
    mean_.reset();
    rstd_.reset();
    weight_.reset();
  }
  void vjp(std::span<Tensor> grads_out, std::span<Tensor> grads_in) override {
    const Tensor& gy = grads_out[0];
    const Tensor x = x_.get(name());
    const Tensor mean = mean_.get(name());
    const Tensor rstd = rstd_.get(name());
    const Tensor weight = needs(0) ? weight_.get(name()) : Tensor();
    if (needs(0)) grads_in[0] = Tensor::empty(shape_, gy.dtype());
    if (needs(1)) grads_in[1] = Tensor::empty({cols_}, gy.dtype());
    if (needs(2)) grads_in[2] = Tensor::empty({cols_}, gy.dtype());
    for_floating(gy.dtype(), name(), [&]<class T>() {
      const auto target = [&](std::size_t i) {
        return grads_in[i].defined() ? grads_in[i].data<T>() : nullptr;
      };
      REMATCH_KERNEL(gy, layer_norm_backward<T>, rows_, cols_, gy.data<T>(), x.data<T>(),
                     mean.data<T>(), rstd.data<T>(), weight.defined() ? weight.data<T>() : nullptr,
                     target(0), target(1), target(2));
    });
  }

 private:
  std::int64_t rows_;
  std::int64_t cols_;
  Shape shape_;
  SavedTensor x_;
  SavedTensor mean_;
  SavedTensor rstd_;
  SavedTensor weight_;
};

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  constexpr std::string_view op = "layer_norm";
  if (is_narrow(x) || is_narrow(weight) || is_narrow(bias)) {
    return layer_norm(widened(x), widened(weight), widened(bias), eps);
  }
  require(x.shape().rank() >= 1 && x.elements() > 0, op,
          [&] { return "a non-empty input of rank >= 1 expected, got " + to_string(x.shape()); });
  const std::int64_t cols = x.shape()[x.shape().rank() - 1];
  const std::int64_t rows = x.elements() / cols;
  for (const Tensor* t : {&weight, &bias}) {
    require_shape(op, "parameter", *t, {cols});
    require_same_dtype(op, x, *t);
  }
  auto [y, mean, rstd] = compute({op, {&x, &weight, &bias}, attributes(eps)}, [&] {
    std::array<Tensor, 3> out{Tensor::empty(x.shape(), x.dtype()), Tensor::empty({rows}, x.dtype()),
                              Tensor::empty({rows}, x.dtype())};
    for_floating(x.dtype(), op, [&]<class T>() {
      REMATCH_KERNEL(x, layer_norm_forward<T>, rows, cols, x.data<T>(), weight.data<T>(),
                     bias.data<T>(), static_cast<T>(eps), out[0].data<T>(), out[1].data<T>(),
                     out[2].data<T>());
    });
    return out;
  });
  record<LayerNormBackward>(y, {&x, &weight, &bias}, rows, cols, x, weight, bias, mean, rstd);
  return y;
}

}  // namespace rematch
