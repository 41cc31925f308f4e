#pragma once

#include <string_view>
#include <utility>

#include "engine/ops/support.h"

namespace rematch {

/// The node of a normalisation. Saves x, the mean if there is one, 1/std and, when x requires grad,
/// the weight, in this order. `backward` is called as
///   backward(gy, pointers to gy, x, mean, 1/std, weight, gx, gw, gb)
/// where the mean is null if there is none, the weight is null unless x requires grad, and
/// gradients that are not needed are null. An undefined `bias` is none.
template <class Backward>
class NormBackward final : public Node {
 public:
  NormBackward(std::string_view name, const Tensor& x, const Tensor& weight, const Tensor& bias,
               const Tensor& mean, const Tensor& rstd, Backward backward)
      : Node(1),
        name_(name),
        shape_(x.shape()),
        parameter_shape_(weight.shape()),
        centred_(mean.defined()),
        backward_(std::move(backward)) {
    connect(*this, {&x, &weight, &bias});
    x_.save(x);
    if (mean.defined()) mean_.save(mean);
    rstd_.save(rstd);
    if (needs(0)) weight_.save(weight);
  }
  std::string_view name() const override { return name_; }
  void release() noexcept override {
    x_.reset();
    mean_.reset();
    rstd_.reset();
    weight_.reset();
  }
  void vjp(std::span<Tensor> grads_out, std::span<Tensor> grads_in) override {
    const Tensor& gy = grads_out[0];
    const Tensor x = x_.get(name());
    const Tensor mean = centred_ ? mean_.get(name()) : Tensor();
    const Tensor rstd = rstd_.get(name());
    const Tensor weight = needs(0) ? weight_.get(name()) : Tensor();
    if (needs(0)) grads_in[0] = Tensor::empty(shape_, gy.dtype());
    if (needs(1)) grads_in[1] = Tensor::empty(parameter_shape_, gy.dtype());
    if (needs(2)) grads_in[2] = Tensor::empty(parameter_shape_, gy.dtype());
    for_floating(gy.dtype(), name(), [&]<class T>() {
      const auto source = [](const Tensor& t) -> const T* {
        return t.defined() ? t.data<T>() : nullptr;
      };
      const auto target = [&](std::size_t i) {
        return grads_in[i].defined() ? grads_in[i].data<T>() : nullptr;
      };
      backward_(gy, source(gy), source(x), source(mean), source(rstd), source(weight), target(0),
                target(1), target(2));
    });
  }

 private:
  std::string_view name_;
  Shape shape_;
  Shape parameter_shape_;
  bool centred_;
  Backward backward_;
  SavedTensor x_;
  SavedTensor mean_;
  SavedTensor rstd_;
  SavedTensor weight_;
};

/// Makes `y` the result of such a node, if anything is to be recorded.
template <class Backward>
void record_norm(Tensor& y, std::string_view name, const Tensor& x, const Tensor& weight,
                 const Tensor& bias, const Tensor& mean, const Tensor& rstd, Backward backward) {
  record<NormBackward<Backward>>(y, {&x, &weight, &bias}, name, x, weight, bias, mean, rstd,
                                 std::move(backward));
}

}  // namespace rematch
