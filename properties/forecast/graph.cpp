// Both variants of checkpointing in a symbolic run, and their recomputations.
#include "properties/forecast/graph.h"

#include <utility>

namespace rematch {

void SymbolicGraph::begin(std::span<const SegmentSpec> segments, std::span<const int> detached,
                          SymbolicHeap& heap, SymbolicHeap& host, Trace& trace,
                          const Trace* measured, Listener& listener) {
  segments_ = segments;
  heap_ = &heap;
  host_ = &host;
  trace_ = &trace;
  measured_ = measured;
  listener_ = &listener;
  for (Layout& l : layouts_) l.detached = false;
  for (const int layer : detached) layouts_[static_cast<std::size_t>(layer)].detached = true;
  const std::size_t parameters = geometry_->parameters.size();
  constant_ = heap.allocate(0, false);
  leaves_.assign(parameters, {});
  nested_shares_.clear();
  scope_cache_.values.assign(parameters, {});
  recomputation_cache_.values.assign(parameters, {});
  cache_ = nullptr;
  hooks_ = {};
  stopped_ = afresh_ = recalls_ = false;
  readers_.clear();
  logs_ = 0;
  policy_frame_ = -1;
}

void SymbolicGraph::end() {
  leaves_.clear();
  constant_.reset();
}

void SymbolicGraph::run_model(const std::vector<SymbolicValue>& inputs, Saving saving,
                              std::vector<int>& executions, bool first) {
  executions_ = &executions;
  first_ = first;
  hooks_.kind = saving == Saving::offloaded ? Hooks::Kind::offload : Hooks::Kind::none;
  stack_ = inputs;
  run_layers(0, static_cast<int>(layouts_.size()), segments_, true, 0);
  hooks_ = {};
  offload_source_.reset();
}

void SymbolicGraph::checkpoint(const SegmentSpec& segment, bool records, std::size_t window) {
  if (!records) {
    const std::size_t own = copy_window(window);
    run_layers(segment.begin, segment.end, segment.nested, false, own);
    replace_window(window, own);
  } else if (segment.choice.variant == Variant::reentrant) {
    checkpoint_reentrant(segment, window);
  } else {
    checkpoint_non_reentrant(segment, window);
  }
}

// The segment runs without recording. If one of its inputs requires grad it becomes one node, which
// saves all inputs, and all its outputs require grad, those that merely pass through included.
// Otherwise there is no node, and whatever the segment has to train is frozen.
void SymbolicGraph::checkpoint_reentrant(const SegmentSpec& segment, std::size_t window) {
  const std::size_t own = copy_window(window);
  bool any = false;
  for (std::size_t i = window; i < own; ++i) any = any || stack_[i].requires_grad;
  const int log = any ? logs_++ : -1;
  if (any) readers_.push_back({log, false});
  run_layers(segment.begin, segment.end, segment.nested, false, own);
  if (any) readers_.pop_back();
  for (std::size_t i = own; i < stack_.size(); ++i) stack_[i].requires_grad = false;
  if (any) {
    Node node = begin_node(Node::Kind::segment, {});
    node.segment = &segment;
    node.log = log;
    node.outputs = static_cast<int>(stack_.size() - own);
    node.edges = static_cast<int>(own - window);
    for (std::size_t i = window; i < own; ++i) edges_.push_back(stack_[i].gradient());
    for (std::size_t i = window; i < own && !stopped_; ++i) {
      save(stack_[i].block, stack_[i].requires_grad, stack_[i].half);
    }
    if (!finish_node(node)) return drop_log(log);
    for (std::size_t i = own; i < stack_.size(); ++i) {
      stack_[i].requires_grad = true;
      stack_[i].edge = {node.first_slot + static_cast<int>(i - own), -1};
    }
  }
  replace_window(window, own);
}

// The segment runs as it is, but what it saves becomes placeholders of a frame, which lives, and
// keeps the inputs, for as long as one of its placeholders does. Inside another frame the inputs
// are saved tensors of that one, from before the segment runs.
void SymbolicGraph::checkpoint_non_reentrant(const SegmentSpec& segment, std::size_t window) {
  const int index = static_cast<int>(frames_.size());
  Frame fresh;
  fresh.segment = &segment;
  fresh.first_input = static_cast<int>(saved_.size());
  fresh.log = logs_++;
  frames_.push_back(fresh);
  const std::size_t end = stack_.size();
  for (std::size_t i = window; i < end && !stopped_; ++i) {
    save(stack_[i].block, stack_[i].requires_grad, stack_[i].half);
    if (!stopped_) ++frames_.back().inputs;
  }
  if (stopped_) return;
  const Hooks outer = std::exchange(hooks_, {Hooks::Kind::frame, index, -1, 0});
  const int outer_policy = std::exchange(policy_frame_, segment.choice.keep.empty() ? -1 : index);
  const bool outer_recalls = std::exchange(recalls_, false);
  const std::size_t own = copy_window(window);
  readers_.push_back({fresh.log, false});
  run_layers(segment.begin, segment.end, segment.nested, true, own);
  readers_.pop_back();
  recalls_ = outer_recalls;
  policy_frame_ = outer_policy;
  hooks_ = outer;
  Frame& frame = frames_[static_cast<std::size_t>(index)];
  frame.over = true;
  if (frame.holders == 0) drop_frame(index);
  replace_window(window, own);
}

// The first saved tensor that a backward wants back from a frame runs the segment again; later ones
// find theirs. The inputs come first: where they are placeholders themselves, their frame is
// recomputed. The graph that a recomputation builds is of no use and goes away with it.
void SymbolicGraph::recompute(int index) {
  frames_[static_cast<std::size_t>(index)].recomputed = true;
  const Frame frame = frames_[static_cast<std::size_t>(index)];
  const std::size_t bound = stack_.size();
  for (int i = 0; i < frame.inputs; ++i) {
    Block block = get(frame.first_input + i);
    const Saved& saved = saved_[static_cast<std::size_t>(frame.first_input + i)];
    stack_.push_back({std::move(block), saved.requires_grad, saved.half, {-1, 0}});
  }
  const Mark before = mark();
  const std::size_t window = stack_.size();
  copy_window(bound);
  const int outer_policy =
      std::exchange(policy_frame_, frame.segment->choice.keep.empty() ? -1 : index);
  const bool outer_recalls = std::exchange(recalls_, true);
  run_again(*frame.segment, frame.log, window,
            {Hooks::Kind::recomputation, index, frame.first_placeholder, 0});
  recalls_ = outer_recalls;
  policy_frame_ = outer_policy;
  stopped_ = false;
  stack_.resize(bound);
  release(before);
  // Tensors that a policy kept serve one recomputation.
  drop_kept(frame);
  recomputed_.push_back(index);
}

// Runs the segment with grad mode on leaves of its own, differentiates that graph at once, and
// returns the gradients of the leaves. Parameters get theirs on the way.
void SymbolicGraph::differentiate_segment(const Node& node, std::size_t out, std::size_t in,
                                          int depth) {
  const std::size_t bound = stack_.size();
  for (int i = 0; i < node.saved; ++i) {
    Block block = get(node.first_saved + i);
    const Saved& saved = saved_[static_cast<std::size_t>(node.first_saved + i)];
    stack_.push_back({std::move(block), saved.requires_grad, saved.half, {}});
  }
  const Mark before = mark();
  const std::size_t outputs = stack_.size();
  for (std::size_t i = bound; i < outputs; ++i) stack_[i].edge.leaf = add_leaf();
  const int first = static_cast<int>(nodes_.size());
  copy_window(bound);
  run_again(*node.segment, node.log, outputs, {});

  const auto gets_gradient = [&](std::size_t k) {
    return hands_[out + k] && stack_[outputs + k].requires_grad;
  };
  const auto count = static_cast<std::size_t>(node.outputs);
  // All outputs that nothing arrived for go before the first gradient is added to another.
  std::vector<SymbolicEdge> roots;
  for (std::size_t k = 0; k < count; ++k) {
    if (gets_gradient(k)) {
      roots.push_back(stack_[outputs + k].edge);
    } else {
      stack_[outputs + k] = {};
    }
  }
  find_reached(first, roots);
  drop_unreached(first);
  std::vector<int> leaf_roots;
  for (std::size_t k = 0; k < count; ++k) {
    if (!gets_gradient(k)) continue;
    const SymbolicEdge root = stack_[outputs + k].edge;
    SymbolicGradient& sum = root.slot >= 0 ? slots_[static_cast<std::size_t>(root.slot)]
                                           : shares_of(root.leaf, depth + 1).sum;
    if (root.leaf >= 0) leaf_roots.push_back(root.leaf);
    if (!sum) {
      sum = hands_[out + k];
      continue;
    }
    // Two outputs that are one value. The sum is new memory, because the gradients have another
    // owner.
    sum = {heap_->allocate(sum.block.bytes()), sum_of(sum.formula, hands_[out + k].formula)};
  }
  walk(first, depth + 1, false, leaf_roots);
  for (int i = 0; i < node.edges; ++i) {
    const int leaf = stack_[bound + static_cast<std::size_t>(i)].edge.leaf;
    hands_[in + static_cast<std::size_t>(i)] = leaves_[static_cast<std::size_t>(leaf)].gradient;
  }
  stack_.resize(bound);
  release(before);
}

/// A live cast cache goes on being used, else the recomputation has one of its own.
void SymbolicGraph::run_again(const SegmentSpec& segment, int log, std::size_t window,
                              const Hooks& hooks) {
  const Hooks outer = std::exchange(hooks_, hooks);
  const bool outer_afresh = std::exchange(afresh_, !segment.choice.preserve_rng);
  CastCache* const outer_cache = cache_;
  if (cache_ == nullptr) cache_ = &recomputation_cache_;
  trace_->recomputations.push_back(trace_->live.size());
  readers_.push_back({log, true});
  run_layers(segment.begin, segment.end, segment.nested, true, window);
  readers_.pop_back();
  if (outer_cache == nullptr) recomputation_cache_.clear();
  cache_ = outer_cache;
  afresh_ = outer_afresh;
  hooks_ = outer;
}

std::size_t SymbolicGraph::copy_window(std::size_t window) {
  const std::size_t end = stack_.size();
  for (std::size_t i = window; i < end; ++i) {
    SymbolicValue value = stack_[i];
    stack_.push_back(std::move(value));
  }
  return end;
}

}  // namespace rematch
