#include "engine/nn/optimizer.h"

#include "engine/autograd/node.h"
#include "engine/cpu/optimizer.h"
#include "engine/cuda/optimizer.h"
#include "engine/tensor/dispatch.h"
#include "engine/tensor/kernel.h"

namespace rematch::nn {

void Optimizer::zero_grad() {
  for (Tensor& p : parameters_) p.set_grad(Tensor());
}

Sgd::Sgd(Tensors parameters, double lr, double momentum)
    : Optimizer(std::move(parameters)),
      lr_(lr),
      momentum_(momentum),
      buffers_(parameters_.size()) {}

Tensors Optimizer::missing(const Tensors& state) const {
  Tensors made(state.size());
  for (std::size_t i = 0; i < state.size(); ++i) {
    const Tensor& p = parameters_[i];
    if (!p.grad().defined() || state[i].defined()) continue;
    made[i] = Tensor::zeros(p.shape(), p.dtype(), Tag::state);
  }
  return made;
}

void Sgd::step() {
  Tensors fresh = momentum_ != 0 ? missing(buffers_) : Tensors(buffers_.size());
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Tensor& p = parameters_[i];
    const Tensor& g = p.grad();
    if (!g.defined()) continue;
    Tensor& buffer = buffers_[i];
    const bool first = fresh[i].defined();
    if (first) buffer = std::move(fresh[i]);
    p.storage()->before_write();
    for_floating(p.dtype(), "sgd", [&]<class T>() {
      REMATCH_KERNEL(g, sgd_step<T>, p.elements(), static_cast<T>(lr_), static_cast<T>(momentum_),
                     first, g.data<T>(), buffer.defined() ? buffer.data<T>() : nullptr,
                     p.data<T>());
    });
    mark_written(p);
  }
}

Adam::Adam(Tensors parameters, double lr, double beta1, double beta2, double eps)
    : Optimizer(std::move(parameters)),
      lr_(lr),
      beta1_(beta1),
      beta2_(beta2),
      eps_(eps),
      steps_(parameters_.size(), 0),
      first_(parameters_.size()),
      second_(parameters_.size()) {}

void Adam::step() {
  Tensors first = missing(first_);
  Tensors second = missing(second_);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Tensor& p = parameters_[i];
    const Tensor& g = p.grad();
    if (!g.defined()) continue;
    if (first[i].defined()) {
      first_[i] = std::move(first[i]);
      second_[i] = std::move(second[i]);
    }
    ++steps_[i];
    p.storage()->before_write();
    for_floating(p.dtype(), "adam", [&]<class T>() {
      REMATCH_KERNEL(g, adam_step<T>, p.elements(), lr_, beta1_, beta2_, eps_, steps_[i],
                     g.data<T>(), first_[i].data<T>(), second_[i].data<T>(), p.data<T>());
    });
    mark_written(p);
  }
}

}  // namespace rematch::nn
