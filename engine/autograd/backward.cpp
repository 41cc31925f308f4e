#include "engine/autograd/backward.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/ambient/ambient.h"
#include "engine/ambient/ranges.h"
#include "engine/autograd/node.h"
#include "engine/tensor/accumulate.h"

namespace rematch {

/// One walk over the graph. Nodes are visited in the reverse order of their creation, leaves as
/// soon as they are ready, in the order in which they became so; each when all gradients that can
/// reach it have arrived, so the order of every sum is fixed.
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
  bool partial() const { return partial_; }
  std::vector<std::function<void()>> at_end;

 private:
  struct Slot {
    std::shared_ptr<Node> node;
    std::size_t first_gradient = 0;
    int waiting = 0;
    /// Its vjp is to run; a capture wants its gradient.
    bool needed = true;
    bool captured = false;
    std::uint64_t outer_task = 0;
    int outer_slot = 0;
  };
  struct Capture {
    int slot = -1;
    int input = 0;
    bool accumulate = false;
    Tensor gradient;
  };

  struct Ready {
    int slot = 0;
    std::uint64_t sequence = 0;
    /// How many became ready before.
    std::uint64_t turn = 0;
    bool operator<(const Ready& other) const {
      return sequence != other.sequence ? sequence < other.sequence : turn > other.turn;
    }
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
  std::vector<Ready> ready_;
  std::uint64_t turns_ = 0;
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
  slots_.push_back({node, gradients_.size(), 0, true, false, node->task_, node->slot_});
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
    throw std::invalid_argument("[backward] gradient of shape " + to_string(root.shape()) + " " +
                                std::string(to_string(root.dtype())) + " expected, got " +
                                to_string(gradient.shape()) + " " +
                                std::string(to_string(gradient.dtype())));
  }
  const Edge edge = gradient_edge(root);
  if (!edge.node) {
    throw std::invalid_argument(
        "[backward] the root does not require grad: nothing it was made from requires grad");
  }
  const Slot& slot = slots_[static_cast<std::size_t>(slot_for(edge.node))];
  Tensor& sum = gradients_[slot.first_gradient + static_cast<std::size_t>(edge.input)];
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
  // slots_ grows on the way.
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const std::shared_ptr<Node> node = slots_[i].node;
    for (const Edge& edge : node->edges) {
      if (!edge.node) continue;
      const int child = slot_for(edge.node);
      ++slots_[static_cast<std::size_t>(child)].waiting;
    }
  }
}

// A vjp is needed when a capture lies behind its node, or when a leaf was asked to accumulate. The
// order of creation would not do: a view whose base was overwritten gets its node when it is used.
void GraphTask::prune() {
  for (Slot& slot : slots_) slot.needed = false;
  for (const Capture& c : captures_) {
    Slot& slot = slots_[static_cast<std::size_t>(c.slot)];
    slot.captured = true;
    slot.needed = c.accumulate;
  }
  std::vector<int> waiting;
  std::vector<int> order;
  waiting.reserve(slots_.size());
  order.reserve(slots_.size());
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    waiting.push_back(slots_[i].waiting);
    if (slots_[i].waiting == 0) order.push_back(static_cast<int>(i));
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    for (const Edge& edge : slots_[static_cast<std::size_t>(order[i])].node->edges) {
      if (!edge.node) continue;
      if (--waiting[static_cast<std::size_t>(edge.node->slot_)] == 0) {
        order.push_back(edge.node->slot_);
      }
    }
  }
  for (auto i = order.rbegin(); i != order.rend(); ++i) {
    Slot& slot = slots_[static_cast<std::size_t>(*i)];
    for (const Edge& edge : slot.node->edges) {
      if (!edge.node) continue;
      const Slot& behind = slots_[static_cast<std::size_t>(edge.node->slot_)];
      if (behind.needed || behind.captured) slot.needed = true;
    }
  }
}

void GraphTask::push(int slot) {
  ready_.push_back({slot, slots_[static_cast<std::size_t>(slot)].node->sequence(), turns_++});
  std::push_heap(ready_.begin(), ready_.end());
}

void GraphTask::arrive(const Edge& edge, Tensor gradient) {
  Slot& slot = slots_[static_cast<std::size_t>(edge.node->slot_)];
  if (gradient.defined()) {
    Tensor& sum = gradients_[slot.first_gradient + static_cast<std::size_t>(edge.input)];
    if (!sum.defined()) {
      sum = std::move(gradient);
    } else if (owned_alone(sum)) {
      // A hook may have had it read.
      sum.storage()->before_write();
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
  const Slot& slot = slots_[static_cast<std::size_t>(index)];
  const std::size_t first = slot.first_gradient;
  const bool needed = slot.needed;
  std::vector<Tensor> grads_out(outputs);
  bool any = false;
  for (std::size_t i = 0; i < outputs; ++i) {
    grads_out[i] = std::exchange(gradients_[first + i], Tensor());
    any = any || grads_out[i].defined();
  }
  const GradMode no_grad(false);
  if (needed || slot.captured) node->run_hooks(grads_out);
  for (Capture& c : captures_) {
    // A leaf owns what it accumulates: a second handle would force a copy.
    if (c.slot == index && !c.accumulate) c.gradient = grads_out[static_cast<std::size_t>(c.input)];
  }
  std::vector<Tensor> grads_in(node->edges.size());
  if (any && needed) {
    if (node->released()) {
      throw std::runtime_error("[backward] the graph behind " + std::string(node->name()) +
                               " was already walked and freed; pass retain_graph to the first "
                               "backward to walk it twice");
    }
    const Range range(node->name());
    node->vjp(grads_out, grads_in);
    if (!retain_ && !node->edges.empty()) {
      node->release();
      node->mark_released();
    }
  }
  grads_out.clear();
  for (std::size_t i = 0; i < node->edges.size(); ++i) {
    if (node->edges[i].node) arrive(node->edges[i], std::move(grads_in[i]));
  }
  if (any && needed) {
    if (RunObserver* observer = ambient().observer) observer->on_gradients(*node);
  }
}

void GraphTask::run() {
  const Range range("backward");
  discover();
  if (!captures_.empty()) prune();
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].waiting == 0) push(static_cast<int>(i));
  }
  while (!ready_.empty()) {
    std::pop_heap(ready_.begin(), ready_.end());
    const int slot = ready_.back().slot;
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
