// The members of Tensor that deal with its history. The others are in engine/tensor, which knows
// nothing about nodes.

#include <stdexcept>

#include "engine/autograd/node.h"
#include "engine/tensor/tensor.h"

namespace rematch {
namespace {

TensorImpl& checked(TensorImpl* impl) {
  if (impl == nullptr) throw std::invalid_argument("[tensor] the tensor is undefined");
  return *impl;
}

}  // namespace

bool Tensor::requires_grad() const {
  const TensorImpl& impl = checked(this->impl());
  if (impl.requires_grad) return true;
  // A view of something that an in-place op has since made differentiable.
  return impl.base && impl.view_version != impl.storage->version() &&
         Tensor(impl.base).requires_grad();
}

Tensor& Tensor::set_requires_grad(bool on) {
  TensorImpl& impl = checked(this->impl());
  if (on && !is_floating(impl.dtype)) {
    throw std::invalid_argument(
        "[tensor] only float32, float64 and bfloat16 can require grad, got " +
        std::string(to_string(impl.dtype)));
  }
  if (!is_leaf()) {
    throw std::invalid_argument(
        "[tensor] requires_grad can be set on leaves only; this tensor was made by an op: "
        "detach() it first");
  }
  impl.requires_grad = on;
  return *this;
}

bool Tensor::is_leaf() const { return grad_fn() == nullptr; }

std::shared_ptr<Node> Tensor::grad_fn() const {
  TensorImpl& impl = checked(this->impl());
  if (impl.base && impl.view_version != impl.storage->version()) {
    if (std::shared_ptr<Node> fresh = refreshed_view_history(impl)) {
      impl.grad_fn = std::move(fresh);
      impl.output_index = 0;
      impl.requires_grad = true;
    }
    impl.view_version = impl.storage->version();
  }
  return impl.grad_fn;
}

void Tensor::register_hook(GradientHook hook) {
  if (!requires_grad()) {
    throw std::invalid_argument("[tensor] a gradient hook needs a tensor that requires grad");
  }
  if (std::shared_ptr<Node> maker = grad_fn()) {
    maker->add_hook(output_index(), std::move(hook));
    return;
  }
  if (!impl_->leaf_hooks) impl_->leaf_hooks = std::make_unique<std::vector<GradientHook>>();
  impl_->leaf_hooks->push_back(std::move(hook));
}

}  // namespace rematch
