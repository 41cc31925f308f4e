// Layers of a symbolic run: what they make, cast, keep and record.
#include <algorithm>
#include <stdexcept>
#include <utility>

#include "properties/case/policy.h"
#include "properties/forecast/graph_layers.h"

namespace rematch {

// `window` is where the values of the caller at hand begin on the stack; they reach to its top.
void GraphLayers::run_layers(int begin, int end, std::span<const SegmentSpec> segments,
                             bool records, std::size_t window) {
  int layer = begin;
  for (const SegmentSpec& segment : segments) {
    for (; layer < segment.begin && !stopped_; ++layer) run_layer(layer, records, window);
    if (stopped_) return;
    checkpoint(segment, records, window);
    layer = segment.end;
  }
  for (; layer < end && !stopped_; ++layer) run_layer(layer, records, window);
}

void GraphLayers::run_layer(int layer, bool records, std::size_t window) {
  const auto index = static_cast<std::size_t>(layer);
  const Layout& l = layouts_[index];
  const int execution = (*executions_)[index]++;
  if (afresh_ && facts_->of(layer).drawn != 0) trace_->drew_afresh = true;
  const std::size_t results = stack_.size();
  const std::int64_t entered = heap_->live();
  const std::size_t made = made_.size();
  made_.resize(made + static_cast<std::size_t>(l.outputs));
  apply(layer, records, window, made);
  if (first_ && execution == 0) note_flags(layer, made);
  for (int m = l.first_move; m < l.first_move + l.moves && !stopped_; ++m) {
    const int from = moves_[static_cast<std::size_t>(m)];
    // A copy: the stack may move.
    SymbolicValue value = from < 0 ? made_[made + static_cast<std::size_t>(-1 - from)]
                                   : stack_[window + static_cast<std::size_t>(from)];
    stack_.push_back(std::move(value));
  }
  made_.resize(made);
  listener_->on_event(Event::layer, layer, execution, entered, stopped_);
  if (!stopped_) replace_window(window, results);
}

void GraphLayers::note_flags(int layer, std::size_t made) {
  std::vector<bool>& flags = trace_->grad_flags[static_cast<std::size_t>(layer)];
  for (std::size_t i = made; i < made_.size(); ++i) flags.push_back(made_[i].requires_grad);
}

void GraphLayers::apply(int layer, bool records, std::size_t window, std::size_t made) {
  const Layout& l = layouts_[static_cast<std::size_t>(layer)];
  const LayerFacts& f = facts_->of(layer);
  for (std::size_t i = made; i < made_.size(); ++i) made_[i] = stack_[window];
  if (f.identity) return;
  if (f.aliases_operand) return apply_view(layer, records, made);

  const std::size_t operands = operands_.size();
  const std::size_t results = results_.size();
  const std::size_t wanted = wanted_.size();
  for (int j = 0; j < l.operands; ++j) {
    operands_.push_back(cast_operand(layer, j, records, window));
  }
  for (int k = 0; k < l.parameters; ++k) operands_.push_back(cast_parameter(layer, k, records));
  compute(layer, results);
  for (int k = 0; k < l.outputs; ++k) {
    const auto at = static_cast<std::size_t>(k);
    made_[made + at] = {results_[results + at], false, f.low_precision, {}};
  }
  if (records) {
    for (std::size_t i = operands; i < operands_.size(); ++i) {
      wanted_.push_back(operands_[i].gradient());
    }
    record(layer, wanted, operands, results, made);
  }
  wanted_.resize(wanted);
  results_.resize(results);
  operands_.resize(operands);
}

/// A layer whose output lies in its operand's memory.
void GraphLayers::apply_view(int layer, bool records, std::size_t made) {
  const SymbolicEdge edge = records ? made_[made].gradient() : SymbolicEdge{};
  if (facts_->of(layer).saved > 0) {
    // In place: the very tensor, with a new history if anything is recorded.
    if (!edge.needed()) return;
    wanted_.push_back(edge);
    operands_.push_back(made_[made]);
    record(layer, wanted_.size() - 1, operands_.size() - 1, results_.size(), made);
    operands_.pop_back();
    wanted_.pop_back();
    return;
  }
  made_[made].requires_grad = false;
  if (!edge.needed()) return;
  Node node = begin_node(Node::Kind::view, Edges(&edge, 1));
  node.layer = layer;
  finish_node(node);
  made_[made].requires_grad = true;
  made_[made].edge = {node.first_slot, -1};
}

SymbolicValue GraphLayers::cast_operand(int layer, int position, bool records, std::size_t window) {
  const Layout& l = layouts_[static_cast<std::size_t>(layer)];
  const auto at = static_cast<std::size_t>(l.first_operand + position);
  const SymbolicValue given = stack_[window + static_cast<std::size_t>(operand_at_[at])];
  const bool low = facts_->of(layer).low_precision;
  return given.half == low ? given : cast(given, operand_elements_[at], low, records);
}

/// The parameter itself, or, in a layer of low precision, its cast.
SymbolicValue GraphLayers::cast_parameter(int layer, int position, bool records) {
  const auto index = static_cast<std::size_t>(layer);
  const bool trains = layouts_[index].trains();
  const SymbolicValue parameter{constant_, trains, false, parameter_edge(layer, position, true)};
  if (!facts_->of(layer).low_precision) return parameter;
  const int p = geometry_->layer_parameters[index][static_cast<std::size_t>(position)];
  const std::int64_t elements = parameter_elements(layer, position);
  // The cache takes leaves that require grad.
  if (!trains || !case_->protocol.cast_cache || cache_ == nullptr) {
    return cast(parameter, elements, true, records);
  }
  Block& cached = cache_->values[static_cast<std::size_t>(p)];
  if (!cached) cached = allocate(elements, true);
  SymbolicValue made{cached, false, true, {}};
  if (!records) return made;
  const SymbolicEdge edges[] = {parameter.gradient()};
  Node node = begin_node(Node::Kind::cast, edges);
  node.bytes = elements * item_;
  finish_node(node);
  made.requires_grad = true;
  made.edge = {node.first_slot, -1};
  return made;
}

/// Pushes the layer's results: its outputs, its own tensors, then the state that it read.
void GraphLayers::compute(int layer, std::size_t results) {
  const bool reads = facts_->of(layer).state_bytes > 0;
  Block state = reads ? read_state(layer) : Block();
  if (!recall(layer)) make(layer, results);
  if (reads) results_.push_back(std::move(state));
}

/// In a recomputation what its forward read, else a copy. It goes to the logs of all regions whose
/// forwards run, up to the innermost recomputation.
Block GraphLayers::read_state(int layer) {
  Block block;
  std::size_t from = readers_.size();
  while (from > 0 && !readers_[from - 1].replays) --from;
  if (from > 0) {
    const auto read = std::find_if(states_.begin(), states_.end(), [&](const State& state) {
      return state.log == readers_[from - 1].log && state.layer == layer;
    });
    if (read == states_.end()) throw std::logic_error("[forecast] a state that was never read");
    block = read->block;
  } else {
    block = heap_->allocate(facts_->of(layer).state_bytes);
  }
  for (std::size_t i = from; i < readers_.size(); ++i) {
    block.hold();
    states_.push_back({readers_[i].log, layer, block});
  }
  return block;
}

/// Pushes the outputs and own tensors of the layer's kernel.
void GraphLayers::make(int layer, std::size_t results) {
  const Layout& l = layouts_[static_cast<std::size_t>(layer)];
  const LayerFacts& f = facts_->of(layer);
  if (first_) trace_->computations[static_cast<std::size_t>(layer)] += f.ops;
  const std::span outputs =
      std::span(output_elements_)
          .subspan(static_cast<std::size_t>(l.first_output), static_cast<std::size_t>(l.outputs));
  if (!f.low_precision) {
    for (const std::int64_t elements : outputs) results_.push_back(allocate(elements));
    for (const std::int64_t bytes : facts_->own_of(f)) results_.push_back(heap_->allocate(bytes));
    if (f.workspace > 0) heap_->allocate(f.workspace);
  } else {
    // Kernels read and write float32: copies of all operands, parameters and outputs.
    std::int64_t wide = 0;
    for (int j = 0; j < l.operands; ++j) {
      wide += operand_elements_[static_cast<std::size_t>(l.first_operand + j)];
    }
    for (int k = 0; k < l.parameters; ++k) wide += parameter_elements(layer, k);
    for (const std::int64_t elements : outputs) wide += elements;
    const Block copies = allocate(wide);
    if (f.workspace > 0) heap_->allocate(f.workspace);
    for (const std::int64_t elements : outputs) results_.push_back(allocate(elements, true));
    for (const std::int64_t bytes : facts_->own_of(f)) results_.push_back(heap_->allocate(bytes));
  }
  keep(layer, results);
}

/// Makes the outputs the results of a node, if anything is to be recorded.
void GraphLayers::record(int layer, std::size_t first_edge, std::size_t operands,
                         std::size_t results, std::size_t made) {
  const Edges edges = std::span(wanted_).subspan(first_edge);
  if (std::none_of(edges.begin(), edges.end(), [](const SymbolicEdge& e) { return e.needed(); })) {
    return;
  }
  const Layout& l = layouts_[static_cast<std::size_t>(layer)];
  const LayerFacts& f = facts_->of(layer);
  note_pattern(layer, edges);
  Node node = begin_node(Node::Kind::layer, edges);
  node.layer = layer;
  node.outputs = l.outputs;
  using What = SavedTensorFact::What;
  using When = SavedTensorFact::When;
  for (const SavedTensorFact& s : facts_->saved_by(f)) {
    const int asked = s.when == When::parameter_requires_grad ? l.operands + s.of : s.of;
    if (s.when != When::always && !edges[static_cast<std::size_t>(asked)].needed()) continue;
    if (stopped_) break;
    const auto at = static_cast<std::size_t>(s.index);
    switch (s.what) {
      case What::operand:
        save(operands_[operands + at].block);
        break;
      case What::parameter:
        save(operands_[operands + static_cast<std::size_t>(l.operands) + at].block);
        break;
      case What::output:
        save(made_[made + at].block);
        break;
      case What::own:
        save(results_[results + static_cast<std::size_t>(l.outputs) + at]);
        break;
      case What::state:
        save(results_.back());
        break;
    }
  }
  if (!finish_node(node)) return;
  for (int k = 0; k < node.outputs; ++k) {
    SymbolicValue& output = made_[made + static_cast<std::size_t>(k)];
    output.requires_grad = true;
    output.edge = {node.first_slot + k, -1};
  }
}

void GraphLayers::note_pattern(int layer, Edges edges) {
  std::uint64_t pattern = 0;
  for (const SymbolicEdge& e : edges) pattern = pattern << 1 | (e.needed() ? 1 : 0);
  const auto index = static_cast<std::size_t>(layer);
  std::uint64_t& first = trace_->recorded_with[index];
  if (first == 0) first = pattern;
  if (measured_ != nullptr && measured_->recorded_with[index] != pattern) {
    trace_->facts_unknown = trace_->saves_unknown[index] = true;
  }
}

/// Pushes what a policy kept of the layer; false: nothing.
bool GraphLayers::recall(int layer) {
  if (!recalls_ || policy_frame_ < 0) return false;
  for (int k = frames_[static_cast<std::size_t>(policy_frame_)].first_kept; k >= 0;
       k = kept_[static_cast<std::size_t>(k)].next) {
    const Kept& kept = kept_[static_cast<std::size_t>(k)];
    if (kept.layer != layer) continue;
    for (int i = kept.first_block; i < kept.first_block + kept.blocks; ++i) {
      results_.push_back(kept_blocks_[static_cast<std::size_t>(i)]);
    }
    return true;
  }
  return false;
}

void GraphLayers::keep(int layer, std::size_t results) {
  if (recalls_ || policy_frame_ < 0) return;
  Frame& frame = frames_[static_cast<std::size_t>(policy_frame_)];
  if (!kept_by_policy(*case_, *frame.segment, layer)) return;
  const Kept kept{layer, static_cast<int>(kept_blocks_.size()),
                  static_cast<int>(results_.size() - results), frame.first_kept};
  for (std::size_t i = results; i < results_.size(); ++i) {
    results_[i].hold();
    kept_blocks_.push_back(results_[i]);
  }
  frame.first_kept = static_cast<int>(kept_.size());
  kept_.push_back(kept);
}

SymbolicEdge GraphLayers::parameter_edge(int layer, int position, bool records) const {
  const auto index = static_cast<std::size_t>(layer);
  if (!records || !layouts_[index].trains()) return {};
  return {-1, geometry_->layer_parameters[index][static_cast<std::size_t>(position)]};
}

/// Replaces the values from `window` on by those from `by` on.
void GraphLayers::replace_window(std::size_t window, std::size_t by) {
  const std::size_t count = stack_.size() - by;
  for (std::size_t i = 0; i < count; ++i) stack_[window + i] = std::move(stack_[by + i]);
  stack_.resize(window + count);
}

}  // namespace rematch
