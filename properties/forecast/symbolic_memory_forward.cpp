#include <algorithm>
#include <utility>

#include "properties/case/policy.h"
#include "properties/forecast/symbolic_memory.h"

namespace rematch {

// `window` is where the values of the caller at hand begin on the stack; they reach to its top.
void SymbolicMemory::run_layers(int begin, int end, std::span<const SegmentSpec> segments,
                                bool grad, std::size_t window) {
  int layer = begin;
  for (const SegmentSpec& region : segments) {
    for (; layer < region.begin && !stopped_; ++layer) run_layer(layer, grad, window);
    if (stopped_) return;
    checkpoint(region, grad, window);
    layer = region.end;
  }
  for (; layer < end && !stopped_; ++layer) run_layer(layer, grad, window);
}

void SymbolicMemory::run_layer(int layer, bool grad, std::size_t window) {
  const auto index = static_cast<std::size_t>(layer);
  const int execution = executions_[static_cast<std::size_t>(pass_) * rules_.size() + index]++;
  const std::size_t results = stack_.size();
  const std::int64_t entered = heap_.live();
  {
    const int other = bytes_[index].other;
    Value made[2];
    // Copies: the stack may move.
    const Value x = stack_[window];
    apply(layer, grad, x, other < 0 ? Value{} : stack_[window + static_cast<std::size_t>(other)],
          made);
    for (int m = first_move_[index]; m < first_move_[index + 1] && !stopped_; ++m) {
      const int from = moves_[static_cast<std::size_t>(m)];
      stack_.push_back(from < 0 ? made[-1 - from]
                                : stack_[window + static_cast<std::size_t>(from)]);
    }
  }
  note(Event::layer, layer, execution, entered);
  events_->back().stops = stopped_;
  if (!stopped_) replace_window(window, results);
}

void SymbolicMemory::apply(int layer, bool grad, const Value& given, const Value& second,
                           Value (&made)[2]) {
  const auto index = static_cast<std::size_t>(layer);
  const LayerRule& rule = rules_[index];
  const ByteRule& bytes = bytes_[index];
  made[0] = made[1] = given;
  if (rule.identity) return;
  if (rule.aliases_input) return apply_view(layer, grad, given, made);
  if (rule.low) return apply_product(layer, grad, given, made);

  const Value x = given.half ? cast(given, bytes.operands[0], false, grad) : given;
  const Value other = second.half ? cast(second, bytes.operands[1], false, grad) : second;
  Block results[3];
  if (!recall(layer, results)) {
    int at = 0;
    for (int k = 0; k < rule.outputs; ++k) results[at++] = allocate(bytes.outputs[k]);
    for (int k = 0; k < bytes.extras; ++k) {
      results[at++] = heap_.allocate(rule.extra_bytes / bytes.extras);
    }
    if (bytes.scratch > 0) allocate(bytes.scratch);
    keep(layer, results[0], results[1], results[2]);
  }
  for (int k = 0; k < rule.outputs; ++k) made[k] = {results[k], false, false, {}};
  if (!grad) return;

  Edge edges[3];
  int count = 0;
  edges[count++] = x.gradient();
  if (bytes.other >= 0) edges[count++] = other.gradient();
  for (int k = 0; k < static_cast<int>(rule.parameters.size()); ++k) {
    edges[count++] = parameter_edge(layer, k, grad);
  }
  const Block extras[2] = {results[rule.outputs],
                           bytes.extras > 1 ? results[rule.outputs + 1] : Block()};
  record(layer, std::span(edges, static_cast<std::size_t>(count)), x.block, constant_, extras,
         made);
}

// flatten, and relu in place: the storage is the operand's.
void SymbolicMemory::apply_view(int layer, bool grad, const Value& x, Value (&made)[2]) {
  const LayerRule& rule = rules_[static_cast<std::size_t>(layer)];
  const Edge edges[] = {grad ? x.gradient() : Edge{}};
  if (rule.saves_output) {
    if (edges[0].needed()) record(layer, edges, x.block, constant_, {}, made);
    return;
  }
  made[0].requires_grad = false;
  if (!edges[0].needed()) return;
  Node node = begin_node(Node::Kind::view, edges);
  node.layer = layer;
  finish_node(node);
  made[0].requires_grad = true;
  made[0].edge = {node.first_slot, -1};
}

// linear and conv2d under autocast.
void SymbolicMemory::apply_product(int layer, bool grad, const Value& given, Value (&made)[2]) {
  const auto index = static_cast<std::size_t>(layer);
  const LayerRule& rule = rules_[index];
  const ByteRule& bytes = bytes_[index];
  const Value x = given.half ? given : cast(given, bytes.operands[0], true, grad);
  Value parameters[2];
  const int used = static_cast<int>(rule.parameters.size());
  for (int k = 0; k < used; ++k) parameters[k] = cast_parameter(layer, k, grad);
  Block results[3];
  if (!recall(layer, results)) {
    // Kernels read and write float32.
    const Block wide[] = {allocate(bytes.operands[0]), allocate(bytes.parameters[0]),
                          allocate(bytes.parameters[1]), allocate(bytes.outputs[0])};
    if (bytes.scratch > 0) allocate(bytes.scratch);
    results[0] = allocate(bytes.outputs[0], true);
    keep(layer, results[0], {}, {});
  }
  made[0] = {results[0], false, true, {}};
  if (!grad) return;
  Edge edges[3] = {x.gradient()};
  for (int k = 0; k < used; ++k) edges[1 + k] = parameters[k].gradient();
  record(layer, std::span(edges, static_cast<std::size_t>(1 + used)), x.block, parameters[0].block,
         {}, made);
}

/// Makes the outputs the results of a node, if anything is to be recorded.
void SymbolicMemory::record(int layer, std::span<const Edge> edges, const Block& x,
                            const Block& weight, const Block (&extras)[2], Value (&made)[2]) {
  if (std::none_of(edges.begin(), edges.end(), [](const Edge& e) { return e.needed(); })) return;
  const auto index = static_cast<std::size_t>(layer);
  const LayerRule& rule = rules_[index];
  Node node = begin_node(Node::Kind::layer, edges);
  node.layer = layer;
  node.outputs = rule.outputs;
  const bool weight_trains = !rule.parameters.empty() && edges[1].needed();
  const auto keep = [&](bool condition, const Block& block) {
    if (condition && !stopped_) save(block);
  };
  keep(rule.saves_input == SavesInput::always ||
           (rule.saves_input == SavesInput::for_weight_gradient && weight_trains),
       x);
  for (int k = 0; k < bytes_[index].extras; ++k) keep(true, extras[k]);
  keep(rule.saves_weight && edges[0].needed(), weight);
  keep(rule.saves_output, made[0].block);
  if (!finish_node(node)) return;
  for (int k = 0; k < node.outputs; ++k) {
    made[k].requires_grad = true;
    made[k].edge = {node.first_slot + k, -1};
  }
}

void SymbolicMemory::checkpoint(const SegmentSpec& region, bool grad, std::size_t window) {
  if (!grad) {
    const std::size_t own = copy_window(window);
    run_layers(region.begin, region.end, region.nested, false, own);
    replace_window(window, own);
  } else if (region.choice.variant == Variant::reentrant) {
    checkpoint_reentrant(region, window);
  } else {
    checkpoint_non_reentrant(region, window);
  }
}

void SymbolicMemory::checkpoint_reentrant(const SegmentSpec& region, std::size_t window) {
  const std::size_t own = copy_window(window);
  run_layers(region.begin, region.end, region.nested, false, own);
  bool any = false;
  for (std::size_t i = window; i < own; ++i) any = any || stack_[i].requires_grad;
  for (std::size_t i = own; i < stack_.size(); ++i) stack_[i].requires_grad = false;
  if (any) {
    Node node = begin_node(Node::Kind::region, {});
    node.region = &region;
    node.outputs = static_cast<int>(stack_.size() - own);
    node.edges = static_cast<int>(own - window);
    for (std::size_t i = window; i < own; ++i) edges_.push_back(stack_[i].gradient());
    for (std::size_t i = window; i < own && !stopped_; ++i) {
      save(stack_[i].block, stack_[i].requires_grad, stack_[i].half);
    }
    if (!finish_node(node)) return;
    for (std::size_t i = own; i < stack_.size(); ++i) {
      stack_[i].requires_grad = true;
      stack_[i].edge = {node.first_slot + static_cast<int>(i - own), -1};
    }
  }
  replace_window(window, own);
}

// The frame holds the inputs for as long as a placeholder of it is held.
void SymbolicMemory::checkpoint_non_reentrant(const SegmentSpec& region, std::size_t window) {
  const int index = static_cast<int>(frames_.size());
  Frame fresh;
  fresh.region = &region;
  fresh.first_input = static_cast<int>(saved_.size());
  frames_.push_back(fresh);
  const std::size_t end = stack_.size();
  for (std::size_t i = window; i < end && !stopped_; ++i) {
    save(stack_[i].block, stack_[i].requires_grad, stack_[i].half);
    if (!stopped_) ++frames_.back().inputs;
  }
  if (stopped_) return;
  const Hooks outer = std::exchange(hooks_, {Hooks::Kind::frame, index, -1, 0});
  const int outer_policy = std::exchange(policy_frame_, region.choice.keep.empty() ? -1 : index);
  const bool outer_recalls = std::exchange(recalls_, false);
  const std::size_t own = copy_window(window);
  run_layers(region.begin, region.end, region.nested, true, own);
  recalls_ = outer_recalls;
  policy_frame_ = outer_policy;
  hooks_ = outer;
  Frame& frame = frames_[static_cast<std::size_t>(index)];
  frame.over = true;
  if (frame.holders == 0) drop_frame(index);
  replace_window(window, own);
}

std::size_t SymbolicMemory::copy_window(std::size_t window) {
  const std::size_t end = stack_.size();
  for (std::size_t i = window; i < end; ++i) stack_.push_back(stack_[i]);
  return end;
}

/// What lies from `by` on takes the place of what lies from `window` on.
void SymbolicMemory::replace_window(std::size_t window, std::size_t by) {
  const std::size_t count = stack_.size() - by;
  for (std::size_t i = 0; i < count; ++i) stack_[window + i] = std::move(stack_[by + i]);
  stack_.resize(window + count);
}

SymbolicMemory::Value SymbolicMemory::cast(const Value& x, std::int64_t elements, bool to_half,
                                           bool grad) {
  Value made{allocate(elements, to_half), false, to_half, {}};
  if (!grad || !x.requires_grad) return made;
  const Edge edges[] = {x.gradient()};
  Node node = begin_node(Node::Kind::cast, edges);
  node.bytes = elements * (to_half ? item_ : 2);
  finish_node(node);
  made.requires_grad = true;
  made.edge = {node.first_slot, -1};
  return made;
}

SymbolicMemory::Value SymbolicMemory::cast_parameter(int layer, int position, bool grad) {
  const auto index = static_cast<std::size_t>(layer);
  const std::int64_t elements = bytes_[index].parameters[position];
  const bool trains = rules_[index].trainable && detached_[index] == 0;
  Value weight{constant_, trains, false, parameter_edge(layer, position, true)};
  // The cache takes leaves that require grad.
  if (!trains || !case_->protocol.cast_cache || cache_ == nullptr) {
    return cast(weight, elements, true, grad);
  }
  const int p = rules_[index].parameters[static_cast<std::size_t>(position)];
  Block& cached = cache_->values[static_cast<std::size_t>(p)];
  if (!cached) cached = allocate(elements, true);
  Value made{cached, false, true, {}};
  if (!grad) return made;
  const Edge edges[] = {weight.gradient()};
  Node node = begin_node(Node::Kind::cast, edges);
  node.bytes = elements * item_;
  finish_node(node);
  made.requires_grad = true;
  made.edge = {node.first_slot, -1};
  return made;
}

SymbolicMemory::Edge SymbolicMemory::parameter_edge(int layer, int position, bool grad) const {
  const auto index = static_cast<std::size_t>(layer);
  if (!grad || !rules_[index].trainable || detached_[index] != 0) return {};
  return {-1, rules_[index].parameters[static_cast<std::size_t>(position)]};
}

bool SymbolicMemory::recall(int layer, Block (&results)[3]) const {
  if (!recalls_ || policy_frame_ < 0) return false;
  for (int k = frames_[static_cast<std::size_t>(policy_frame_)].first_kept; k >= 0;
       k = kept_[static_cast<std::size_t>(k)].next) {
    const Kept& kept = kept_[static_cast<std::size_t>(k)];
    if (kept.layer != layer) continue;
    std::copy(std::begin(kept.blocks), std::end(kept.blocks), results);
    return true;
  }
  return false;
}

void SymbolicMemory::keep(int layer, const Block& first, const Block& second, const Block& third) {
  if (recalls_ || policy_frame_ < 0) return;
  Frame& frame = frames_[static_cast<std::size_t>(policy_frame_)];
  if (!kept_by_policy(*case_, *frame.region, layer)) return;
  kept_.push_back({layer, {first, second, third}, frame.first_kept});
  frame.first_kept = static_cast<int>(kept_.size()) - 1;
}

SymbolicMemory::Node SymbolicMemory::begin_node(Node::Kind kind, std::span<const Edge> edges) {
  Node node;
  node.kind = kind;
  node.first_edge = static_cast<int>(edges_.size());
  node.edges = static_cast<int>(edges.size());
  node.first_saved = static_cast<int>(saved_.size());
  edges_.insert(edges_.end(), edges.begin(), edges.end());
  return node;
}

/// false: a replay stopped at a save of this node, which therefore never was.
bool SymbolicMemory::finish_node(Node& node) {
  if (stopped_) {
    for (int i = static_cast<int>(saved_.size()); i-- > node.first_saved;) {
      drop(i);
      saved_.pop_back();
    }
    edges_.resize(static_cast<std::size_t>(node.first_edge));
    return false;
  }
  node.saved = static_cast<int>(saved_.size()) - node.first_saved;
  node.first_slot = static_cast<int>(slots_.size());
  slots_.resize(slots_.size() + static_cast<std::size_t>(node.outputs));
  nodes_.push_back(node);
  return true;
}

void SymbolicMemory::save(const Block& block, bool requires_grad, bool half) {
  Saved saved;
  saved.requires_grad = requires_grad;
  saved.half = half;
  switch (hooks_.kind) {
    case Hooks::Kind::none:
      saved.block = block;
      break;
    case Hooks::Kind::offload:
      if (!block.temporary()) {
        saved.block = block;
        break;
      }
      saved.host = block.twin();
      if (saved.host) break;
      offload_source_.reset();
      saved.host = host_.allocate(block.bytes());
      block.join(saved.host);
      offload_source_ = block;
      break;
    case Hooks::Kind::frame: {
      saved.placeholder = static_cast<int>(placeholders_.size());
      Frame& frame = frames_[static_cast<std::size_t>(hooks_.frame)];
      placeholders_.push_back({{}, hooks_.frame, -1, true});
      int& link = frame.last_placeholder < 0
                      ? frame.first_placeholder
                      : placeholders_[static_cast<std::size_t>(frame.last_placeholder)].next;
      link = frame.last_placeholder = saved.placeholder;
      ++frame.saves;
      ++frame.holders;
      break;
    }
    case Hooks::Kind::replay: {
      Placeholder& wanted = placeholders_[static_cast<std::size_t>(hooks_.next_placeholder)];
      if (wanted.held) wanted.recomputed = block;
      hooks_.next_placeholder = wanted.next;
      const Frame& frame = frames_[static_cast<std::size_t>(hooks_.frame)];
      if (++hooks_.count == frame.saves && frame.region->choice.early_stop) {
        stopped_ = true;
        return;
      }
      saved.block = block;
      break;
    }
  }
  saved_.push_back(std::move(saved));
}

}  // namespace rematch
