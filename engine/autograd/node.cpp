#include "engine/autograd/node.h"

#include <limits>
#include <stdexcept>
#include <string>

#include "engine/ambient/ambient.h"
#include "engine/autograd/accumulate.h"

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

}  // namespace

Node::Node(int outputs) : sequence_(next_sequence()), outputs_(outputs) {}

// A chain of nodes owned only by each other would be destroyed recursively, one stack frame per
// layer; deep graphs are taken apart in a loop instead.
Node::~Node() {
  thread_local std::vector<std::shared_ptr<Node>>* pending = nullptr;
  if (pending != nullptr) {
    for (Edge& e : edges) {
      if (e.node && e.node.use_count() == 1) pending->push_back(std::move(e.node));
    }
    return;
  }
  std::vector<std::shared_ptr<Node>> queue;
  pending = &queue;
  for (Edge& e : edges) {
    if (e.node && e.node.use_count() == 1) queue.push_back(std::move(e.node));
  }
  while (!queue.empty()) {
    const std::shared_ptr<Node> last = std::move(queue.back());
    queue.pop_back();
  }
  pending = nullptr;
}

AccumulateGrad::AccumulateGrad(std::shared_ptr<TensorImpl> leaf) : Node(1), leaf_(std::move(leaf)) {
  // Leaves go first as soon as they are ready, so that their gradients do not pile up.
  sequence_ = std::numeric_limits<std::uint64_t>::max();
}

void AccumulateGrad::vjp(std::span<Tensor> grads_out, std::span<Tensor> /*grads_in*/) {
  Tensor gradient = std::move(grads_out[0]);
  if (leaf_->leaf_hooks) {
    for (const GradientHook& hook : *leaf_->leaf_hooks) {
      if (Tensor replaced = hook(gradient); replaced.defined()) gradient = std::move(replaced);
    }
  }
  if (leaf_->grad.defined()) {
    add_into(leaf_->grad, gradient);
    return;
  }
  leaf_->grad = owned_alone(gradient) && gradient.is_leaf() ? std::move(gradient) : gradient.clone();
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
  if (impl.base) impl.base->view_version = impl.storage->version();
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
  if (!ambient().grad_enabled) return;
  const TensorImpl* impl = t.impl();
  const TensorImpl* root = impl->base ? impl->base.get() : impl;
  if (root->requires_grad && !root->grad_fn) {
    throw std::invalid_argument("[" + std::string(op) +
                                "] a leaf that requires grad is being used in an in-place "
                                "operation; detach() it or use the out-of-place form");
  }
}

std::shared_ptr<Node> refreshed_view_history(const TensorImpl& view) {
  const Tensor base(view.base);
  return base.requires_grad() ? std::make_shared<ViewBackward>(base) : nullptr;
}

}  // namespace rematch
