#include "engine/autograd/backward.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/ambient/ambient.h"
#include "engine/autograd/accumulate.h"
#include "engine/autograd/node.h"

namespace rematch {

/// One walk over the graph. Nodes are visited in the reverse order of their creation, each when
/// all gradients that can reach it have arrived, so the order of every sum is fixed.
class GraphTask {
 public:
  GraphTask(bool retain, bool partial);
  ~GraphTask();
  GraphTask(const GraphTask&) = delete;
  GraphTask& operator=(const GraphTask&) = delete;

  void add_root(const Tensor& root, Tensor gradient);
  /// The gradient that arrives at `input` is returned as captured(i); the node behind it runs only
  /// when `accumulate` is set.
  void add_capture(const Tensor& input, bool accumulate);
  void run();
  Tensor captured(std::size_t i) { return captures_[i].gradient; }

  static GraphTask* current();
  std::uint64_t id() const { return id_; }
  bool partial() const { return partial_; }
  std::vector<std::function<void()>> at_end;

 private:
  struct Slot {
    std::shared_ptr<Node> node;
    int first_gradient = 0;
    int waiting = 0;
    bool needed = true;
    std::uint64_t outer_task = 0;
    int outer_slot = 0;
  };
  struct Capture {
    int slot = -1;
    int input = 0;
    bool accumulate = false;
    Tensor gradient;
  };

  int slot_for(const std::shared_ptr<Node>& node);
  void discover();
  void prune();
  void push(int slot);
  void arrive(const Edge& edge, Tensor gradient);
  void visit(int slot);

  std::uint64_t id_;
  bool retain_;
  bool partial_;
  GraphTask* outer_;
  std::uint64_t outer_id_;
  std::vector<Slot> slots_;
  std::vector<Tensor> gradients_;
  std::vector<int> ready_;
  std::vector<Capture> captures_;
};

namespace {

thread_local GraphTask* current_task = nullptr;

std::uint64_t next_backward_id() {
  thread_local std::uint64_t counter = 0;
  return ++counter;
}

}  // namespace

GraphTask* GraphTask::current() { return current_task; }

GraphTask::GraphTask(bool retain, bool partial)
    : id_(next_backward_id()),
      retain_(retain),
      partial_(partial),
      outer_(current_task),
      outer_id_(ambient().backward_id) {
  current_task = this;
  ambient().backward_id = id_;
}

GraphTask::~GraphTask() {
  for (Slot& slot : slots_) {
    slot.node->task_ = slot.outer_task;
    slot.node->slot_ = slot.outer_slot;
  }
  current_task = outer_;
  ambient().backward_id = outer_id_;
  for (const auto& callback : at_end) callback();
}

int GraphTask::slot_for(const std::shared_ptr<Node>& node) {
  if (node->task_ == id_) return node->slot_;
  const int index = static_cast<int>(slots_.size());
  slots_.push_back({node, static_cast<int>(gradients_.size()), 0, true, node->task_, node->slot_});
  gradients_.resize(gradients_.size() + static_cast<std::size_t>(node->outputs()));
  node->task_ = id_;
  node->slot_ = index;
  return index;
}

void GraphTask::add_root(const Tensor& root, Tensor gradient) {
  if (!gradient.defined()) {
    if (root.elements() != 1) {
      throw std::invalid_argument(
          "[backward] a root without a given gradient must have one element, got shape " +
          to_string(root.shape()));
    }
    gradient = Tensor::ones(root.shape(), root.dtype());
  } else if (!(gradient.shape() == root.shape()) || gradient.dtype() != root.dtype()) {
    throw std::invalid_argument("[backward] gradient of shape " + to_string(root.shape()) +
                                " expected, got " + to_string(gradient.shape()));
  }
  const Edge edge = gradient_edge(root);
  if (!edge.node) {
    throw std::invalid_argument(
        "[backward] the root does not require grad: nothing it was made from requires grad");
  }
  const Slot& slot = slots_[static_cast<std::size_t>(slot_for(edge.node))];
  Tensor& sum = gradients_[static_cast<std::size_t>(slot.first_gradient + edge.input)];
  sum = sum.defined() ? sum_of(sum, gradient) : std::move(gradient);
}

void GraphTask::add_capture(const Tensor& input, bool accumulate) {
  const Edge edge = gradient_edge(input);
  if (!edge.node) {
    throw std::invalid_argument("[grad] input " + std::to_string(captures_.size()) +
                                " does not require grad");
  }
  captures_.push_back({slot_for(edge.node), edge.input, accumulate, Tensor()});
}

// Breadth-first over the graph behind the roots, counting the edges into every node.
void GraphTask::discover() {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const std::shared_ptr<Node> node = slots_[i].node;
    for (const Edge& edge : node->edges) {
      if (!edge.node) continue;
      const int child = slot_for(edge.node);
      ++slots_[static_cast<std::size_t>(child)].waiting;
    }
  }
}

// A node is needed when a capture lies at it or behind it. Operands are older than what was made
// from them, leaves aside, so one pass in the order of creation settles it.
void GraphTask::prune() {
  for (Slot& slot : slots_) slot.needed = false;
  for (const Capture& c : captures_) slots_[static_cast<std::size_t>(c.slot)].needed = true;
  std::vector<int> order(slots_.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  const auto sequence = [&](int i) { return slots_[static_cast<std::size_t>(i)].node->sequence(); };
  std::sort(order.begin(), order.end(), [&](int a, int b) { return sequence(a) < sequence(b); });
  for (const int i : order) {
    Slot& slot = slots_[static_cast<std::size_t>(i)];
    for (const Edge& edge : slot.node->edges) {
      if (edge.node && slots_[static_cast<std::size_t>(edge.node->slot_)].needed) slot.needed = true;
    }
  }
}

void GraphTask::push(int slot) {
  ready_.push_back(slot);
  std::push_heap(ready_.begin(), ready_.end(), [&](int a, int b) {
    return slots_[static_cast<std::size_t>(a)].node->sequence() <
           slots_[static_cast<std::size_t>(b)].node->sequence();
  });
}

void GraphTask::arrive(const Edge& edge, Tensor gradient) {
  Slot& slot = slots_[static_cast<std::size_t>(edge.node->slot_)];
  if (gradient.defined()) {
    Tensor& sum = gradients_[static_cast<std::size_t>(slot.first_gradient + edge.input)];
    if (!sum.defined()) {
      sum = std::move(gradient);
    } else if (owned_alone(sum)) {
      add_into(sum, gradient);
    } else {
      sum = sum_of(sum, gradient);
    }
  }
  if (--slot.waiting == 0) push(edge.node->slot_);
}

void GraphTask::visit(int index) {
  const std::shared_ptr<Node> node = slots_[static_cast<std::size_t>(index)].node;
  const auto outputs = static_cast<std::size_t>(node->outputs());
  const auto first = static_cast<std::size_t>(slots_[static_cast<std::size_t>(index)].first_gradient);
  std::vector<Tensor> grads_out(outputs);
  bool any = false;
  for (std::size_t i = 0; i < outputs; ++i) {
    grads_out[i] = std::move(gradients_[first + i]);
    gradients_[first + i] = Tensor();
    any = any || grads_out[i].defined();
  }
  for (const auto& [output, hook] : node->hooks()) {
    Tensor& gradient = grads_out[static_cast<std::size_t>(output)];
    if (!gradient.defined()) continue;
    if (Tensor replaced = hook(gradient); replaced.defined()) gradient = std::move(replaced);
  }
  bool run = any && slots_[static_cast<std::size_t>(index)].needed;
  if (!captures_.empty()) {
    bool captured = false;
    bool accumulate = false;
    for (Capture& c : captures_) {
      if (c.slot != index) continue;
      c.gradient = grads_out[static_cast<std::size_t>(c.input)];
      captured = true;
      accumulate = accumulate || c.accumulate;
    }
    // A leaf's gradient is returned, not accumulated, unless backward() was asked for it.
    if (captured && node->edges.empty()) run = run && accumulate;
  }
  std::vector<Tensor> grads_in(node->edges.size());
  if (run) {
    if (node->released()) {
      throw std::runtime_error("[backward] the graph behind " + std::string(node->name()) +
                               " was already walked and freed; pass retain_graph to the first "
                               "backward to walk it twice");
    }
    {
      GradMode no_grad(false);
      node->vjp(grads_out, grads_in);
    }
    if (!retain_ && !node->edges.empty()) {
      node->release();
      node->mark_released();
    }
  }
  grads_out.clear();
  for (std::size_t i = 0; i < node->edges.size(); ++i) {
    if (node->edges[i].node) arrive(node->edges[i], std::move(grads_in[i]));
  }
}

void GraphTask::run() {
  discover();
  if (!captures_.empty()) prune();
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].waiting == 0) push(static_cast<int>(i));
  }
  const auto older = [&](int a, int b) {
    return slots_[static_cast<std::size_t>(a)].node->sequence() <
           slots_[static_cast<std::size_t>(b)].node->sequence();
  };
  while (!ready_.empty()) {
    std::pop_heap(ready_.begin(), ready_.end(), older);
    const int slot = ready_.back();
    ready_.pop_back();
    visit(slot);
  }
}

namespace {

void add_roots(GraphTask& task, std::span<const Tensor> roots, std::span<const Tensor> grads) {
  if (!grads.empty() && grads.size() != roots.size()) {
    throw std::invalid_argument("[backward] " + std::to_string(roots.size()) + " roots but " +
                                std::to_string(grads.size()) + " gradients");
  }
  for (std::size_t i = 0; i < roots.size(); ++i) {
    task.add_root(roots[i], grads.empty() ? Tensor() : grads[i]);
  }
}

}  // namespace

void backward(std::span<const Tensor> roots, std::span<const Tensor> grads,
              const BackwardOptions& options) {
  GraphTask task(options.retain_graph, !options.inputs.empty());
  add_roots(task, roots, grads);
  for (const Tensor& input : options.inputs) {
    if (!input.is_leaf()) {
      throw std::invalid_argument("[backward] inputs must be leaves; use grad() for others");
    }
    task.add_capture(input, true);
  }
  task.run();
}

void backward(const Tensor& root, const BackwardOptions& options) {
  backward(std::span(&root, 1), {}, options);
}

Tensors grad(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
             std::span<const Tensor> grads, bool retain_graph) {
  GraphTask task(retain_graph, true);
  add_roots(task, outputs, grads);
  for (const Tensor& input : inputs) task.add_capture(input, false);
  task.run();
  Tensors result;
  for (std::size_t i = 0; i < inputs.size(); ++i) result.push_back(task.captured(i));
  return result;
}

std::uint64_t current_backward() { return ambient().backward_id; }
bool current_backward_is_partial() {
  const GraphTask* task = GraphTask::current();
  return task != nullptr && task->partial();
}

void at_end_of_backward(std::function<void()> callback) {
  if (GraphTask* task = GraphTask::current()) task->at_end.push_back(std::move(callback));
}

}  // namespace rematch
