#include "engine/autograd/node.h"

#include <limits>
#include <stdexcept>
#include <string>

#include "engine/ambient/ambient.h"
#include "engine/tensor/accumulate.h"

namespace rematch {
namespace {

std::uint64_t next_sequence() {
  thread_local std::uint64_t counter = 0;
  return ++counter;
}

// The same values in another shape. Also the link between a view and its base after one of them
// was overwritten in place.
class ViewBackward final : public Node {
 public:
  explicit ViewBackward(const Tensor& operand) : Node(1), shape_(operand.shape()) {
    edges.push_back(gradient_edge(operand));
  }
  std::string_view name() const override { return "ViewBackward"; }
  void vjp(std::span<Tensor> grads_out, std::span<Tensor> grads_in) override {
    grads_in[0] = reshape_alias(grads_out[0], shape_);
  }

 private:
  Shape shape_;
};

void run_hook(const GradientHook& hook, Tensor& gradient) {
  if (!gradient.defined()) return;
  Tensor replaced = hook(gradient);
  if (!replaced.defined()) return;
  if (!(replaced.shape() == gradient.shape()) || replaced.dtype() != gradient.dtype()) {
    throw std::invalid_argument(
        "[backward] a hook must return a gradient of shape " + to_string(gradient.shape()) + " " +
        std::string(to_string(gradient.dtype())) + ", got " + to_string(replaced.shape()) + " " +
        std::string(to_string(replaced.dtype())));
  }
  gradient = std::move(replaced);
}

}  // namespace

Node::Node(int outputs) : sequence_(next_sequence()), outputs_(outputs) {}

// A chain of nodes owned only by each other would be destroyed recursively, one stack frame per
// layer; deep graphs are taken apart in a loop instead. The nodes wait in a list that runs through
// them, for a destructor must not allocate. One that waits already loses a reference and no more:
// the list holds another.
Node::~Node() {
  thread_local std::shared_ptr<Node>* pending = nullptr;
  std::shared_ptr<Node> list;
  const bool outermost = pending == nullptr;
  if (outermost) pending = &list;
  for (Edge& e : edges) {
    const std::shared_ptr<Node> node = std::move(e.node);
    if (!node || node->waits_) continue;
    node->waits_ = true;
    node->next_ = std::exchange(*pending, node);
  }
  if (!outermost) return;
  while (list) {
    const std::shared_ptr<Node> first = std::move(list);
    list = std::move(first->next_);
    first->waits_ = false;
  }
  pending = nullptr;
}

void Node::run_hooks(std::span<Tensor> grads_out) const {
  for (std::size_t i = 0, n = hooks_.size(); i < n; ++i) {
    // A copy: a hook may register another one and so move the list it is in.
    const auto [output, hook] = hooks_[i];
    run_hook(hook, grads_out[static_cast<std::size_t>(output)]);
  }
}

AccumulateGrad::AccumulateGrad(std::shared_ptr<TensorImpl> leaf) : Node(1), leaf_(std::move(leaf)) {
  // Leaves go first as soon as they are ready, so that their gradients do not pile up.
  sequence_ = std::numeric_limits<std::uint64_t>::max();
}

void AccumulateGrad::run_hooks(std::span<Tensor> grads_out) const {
  Node::run_hooks(grads_out);
  if (!leaf_->leaf_hooks) return;
  for (std::size_t i = 0, n = leaf_->leaf_hooks->size(); i < n; ++i) {
    const auto hook = (*leaf_->leaf_hooks)[i];
    run_hook(hook, grads_out[0]);
  }
}

void AccumulateGrad::vjp(std::span<Tensor> grads_out, std::span<Tensor> /*grads_in*/) {
  // A leaf that was frozen since the forward gets none, as in PyTorch.
  if (!leaf_->requires_grad) return;
  Tensor gradient = std::move(grads_out[0]);
  if (leaf_->grad.defined()) {
    leaf_->grad.storage()->before_write();
    add_into(leaf_->grad, gradient);
    // So that uses of the saved, unchanged gradient are detected.
    leaf_->grad.storage()->bump_version();
    return;
  }
  leaf_->grad =
      owned_alone(gradient) && gradient.is_leaf() ? std::move(gradient) : gradient.clone();
  leaf_->grad.storage()->set_tag(Tag::gradients);
}

Edge gradient_edge(const Tensor& t) {
  if (!t.requires_grad()) return {};
  if (std::shared_ptr<Node> maker = t.grad_fn()) return {std::move(maker), t.output_index()};
  TensorImpl& impl = *t.impl();
  std::shared_ptr<Node> accumulator = impl.accumulator.lock();
  if (!accumulator) {
    accumulator = std::make_shared<AccumulateGrad>(t.shared_impl());
    impl.accumulator = accumulator;
  }
  return {std::move(accumulator), 0};
}

bool should_record(std::initializer_list<const Tensor*> operands) {
  if (!ambient().grad_enabled) return false;
  for (const Tensor* t : operands) {
    if (t->defined() && t->requires_grad()) return true;
  }
  return false;
}

void set_history(Tensor& output, std::shared_ptr<Node> node, int index) {
  TensorImpl& impl = *output.impl();
  impl.requires_grad = true;
  impl.grad_fn = std::move(node);
  impl.output_index = index;
  impl.view_version = impl.storage->version();
}

void mark_written(Tensor& t) {
  TensorImpl& impl = *t.impl();
  // The maker of a view is looked up before the write: afterwards it would derive from the base
  // as written.
  const bool current = impl.view_version == impl.storage->version();
  impl.storage->bump_version();
  if (current) impl.view_version = impl.storage->version();
}

void set_history_in_place(Tensor& t, std::shared_ptr<Node> node) {
  set_history(t, std::move(node));
  TensorImpl& impl = *t.impl();
  if (!impl.base) return;
  // The base holds the new values, too: it derives from this view, reshaped back.
  Tensor base(impl.base);
  auto back = std::make_shared<ViewBackward>(t);
  set_history(base, std::move(back));
}

void check_in_place(const Tensor& t, std::string_view op) {
  if (!t.defined()) {
    throw std::invalid_argument("[" + std::string(op) +
                                "] a tensor expected, got an undefined one");
  }
  if (t.dtype() == DType::bfloat16) {
    throw std::invalid_argument("[" + std::string(op) +
                                "] ops compute in float32 and cannot write bfloat16 in place; use "
                                "the out-of-place form, which returns float32, or cast() the "
                                "tensor to float32 first");
  }
  t.storage()->before_write();
  if (!ambient().grad_enabled) return;
  const TensorImpl* impl = t.impl();
  const TensorImpl* root = impl->base ? impl->base.get() : impl;
  if (impl->sealed || root->sealed) {
    throw std::invalid_argument("[" + std::string(op) +
                                "] this output of a reentrant checkpoint shares its memory with an "
                                "input or a captured tensor, which an in-place write would change "
                                "behind autograd's back; clone() it first");
  }
  if (root->requires_grad && !root->grad_fn) {
    throw std::invalid_argument("[" + std::string(op) +
                                "] a leaf that requires grad is being used in an in-place "
                                "operation; detach() it or use the out-of-place form");
  }
  if (root->requires_grad && !t.requires_grad()) {
    throw std::invalid_argument("[" + std::string(op) +
                                "] a view that was made without recording cannot be written with "
                                "recording: what it views would not notice; make the view again");
  }
}

std::shared_ptr<Node> refreshed_view_history(const TensorImpl& view) {
  const Tensor base(view.base);
  return base.requires_grad() ? std::make_shared<ViewBackward>(base) : nullptr;
}

}  // namespace rematch
