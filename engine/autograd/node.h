#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/tensor/tensor.h"

namespace rematch {

/// Where a gradient goes: gradient `input` of `node` (counted over the tensors the node made).
struct Edge {
  std::shared_ptr<Node> node;
  int input = 0;
};

/// One recorded operation. It made `outputs` tensors from `edges.size()` operands and turns
/// gradients of the former into gradients of the latter.
class Node {
 public:
  explicit Node(int outputs);
  virtual ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  virtual std::string_view name() const = 0;

  /// grads_out[i] is the gradient of output i, undefined when none arrived (at least one is
  /// defined). Fills grads_in[j] for edge j; undefined means no gradient. Runs with grad mode off.
  virtual void vjp(std::span<Tensor> grads_out, std::span<Tensor> grads_in) = 0;

  /// Lets go of everything saved for vjp.
  virtual void release() noexcept {}

  /// Edges, one per operand; an edge without node means the operand needs no gradient.
  std::vector<Edge> edges;

  int outputs() const { return outputs_; }
  /// Order of creation on this thread. A node's operands were made before it.
  std::uint64_t sequence() const { return sequence_; }
  bool needs(std::size_t edge) const { return edges[edge].node != nullptr; }

  void add_hook(int output, GradientHook hook) { hooks_.emplace_back(output, std::move(hook)); }
  /// Runs the hooks of each output on its gradient, where there is one. Throws
  /// std::invalid_argument when a replacement differs from the gradient in shape or dtype.
  virtual void run_hooks(std::span<Tensor> grads_out) const;

  bool released() const { return released_; }
  void mark_released() { released_ = true; }

 protected:
  std::uint64_t sequence_;

 private:
  friend class GraphTask;
  std::vector<std::pair<int, GradientHook>> hooks_;
  int outputs_;
  bool released_ = false;
  // The list of nodes that lost a reference with the graph that is being destroyed; see ~Node().
  bool waits_ = false;
  std::shared_ptr<Node> next_;
  // Position in the backward pass that is visiting this node; see GraphTask.
  std::uint64_t task_ = 0;
  int slot_ = 0;
};

/// Adds the gradient of a leaf into its .grad.
class AccumulateGrad final : public Node {
 public:
  explicit AccumulateGrad(std::shared_ptr<TensorImpl> leaf);
  std::string_view name() const override { return "AccumulateGrad"; }
  void vjp(std::span<Tensor> grads_out, std::span<Tensor> grads_in) override;
  /// The leaf keeps its hooks itself: this node comes and goes with the graphs that use the leaf.
  void run_hooks(std::span<Tensor> grads_out) const override;
  Tensor leaf() const { return Tensor(leaf_); }

 private:
  std::shared_ptr<TensorImpl> leaf_;
};

/// The edge along which `t`'s gradient flows: to its maker, to its accumulator for a leaf that
/// requires grad, nowhere otherwise.
Edge gradient_edge(const Tensor& t);

/// True when grad mode is on and one of the operands requires grad. Undefined tensors are skipped.
bool should_record(std::initializer_list<const Tensor*> operands);

/// Sets `node` as the grad_fn of `output`, which is its output number `index`.
void set_history(Tensor& output, std::shared_ptr<Node> node, int index = 0);

/// After an in-place write to `t`: bumps the version, so that saved tensors with the old values are
/// detected.
void mark_written(Tensor& t);

/// After mark_written(): sets `node` as the grad_fn of `t`. If `t` is a view, its base derives from
/// it from now on. check_in_place() must have passed before the write.
void set_history_in_place(Tensor& t, std::shared_ptr<Node> node);

/// The history that a view has after its base was overwritten in place; nullptr when the base
/// requires no grad.
std::shared_ptr<Node> refreshed_view_history(const TensorImpl& view);

/// Throws std::invalid_argument when `t` is bfloat16, or grad mode is on and `t` (or what it views)
/// is a leaf that requires grad: "a leaf that requires grad is being used in an in-place
/// operation", or it is a view made without recording. If it returns, the write may be queued.
void check_in_place(const Tensor& t, std::string_view op);

}  // namespace rematch
