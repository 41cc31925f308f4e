// Parts of a graph: layouts, nodes, and the tensors that are saved for them.
#include "properties/forecast/graph_nodes.h"

#include <algorithm>
#include <utility>

namespace rematch {

void GraphNodes::bind(const Case& c, const Geometry& geometry, const Facts& facts) {
  case_ = &c;
  geometry_ = &geometry;
  facts_ = &facts;
  item_ = static_cast<std::int64_t>(size_of(c.dtype));
  layouts_.clear();
  operand_at_.clear();
  operand_elements_.clear();
  output_elements_.clear();
  moves_.clear();
  for (int i = 0; i < static_cast<int>(c.layers.size()); ++i) lay_out(i);
}

void GraphNodes::lay_out(int layer) {
  const auto index = static_cast<std::size_t>(layer);
  const LayerSpec& spec = case_->layers[index];
  const Shape input{std::span(case_->input)};
  const std::vector<ValueRef>& before = geometry_->live[index];
  const auto place_of = [&](const ValueRef& v) {
    return static_cast<int>(std::find(before.begin(), before.end(), v) - before.begin());
  };
  Layout l;
  l.first_operand = static_cast<int>(operand_at_.size());
  const auto add_operand = [&](const ValueRef& v) {
    operand_at_.push_back(place_of(v));
    operand_elements_.push_back(geometry_->shape_of(v, input).elements());
    ++l.operands;
  };
  add_operand({layer - 1, 0});
  for (const ValueRef& v : spec.from) add_operand(v);

  l.first_output = static_cast<int>(output_elements_.size());
  l.outputs = static_cast<int>(geometry_->outputs[index].size());
  for (const Shape& y : geometry_->outputs[index]) output_elements_.push_back(y.elements());

  l.first_move = static_cast<int>(moves_.size());
  for (const ValueRef& v : geometry_->live[index + 1]) {
    moves_.push_back(v.layer == layer ? -1 - v.output : place_of(v));
    ++l.moves;
  }
  for (const int p : geometry_->layer_parameters[index]) {
    ++l.parameters;
    l.trainable = l.trainable || !geometry_->parameters[static_cast<std::size_t>(p)].frozen;
  }
  layouts_.push_back(l);
}

int GraphNodes::add_leaf() {
  leaves_.emplace_back();
  return static_cast<int>(leaves_.size()) - 1;
}

GraphNodes::Node GraphNodes::begin_node(Node::Kind kind, Edges edges) {
  Node node;
  node.kind = kind;
  node.first_edge = static_cast<int>(edges_.size());
  node.edges = static_cast<int>(edges.size());
  node.first_saved = static_cast<int>(saved_.size());
  edges_.insert(edges_.end(), edges.begin(), edges.end());
  return node;
}

/// false: a recomputation stopped at a save of this node, which therefore never was.
bool GraphNodes::finish_node(Node& node) {
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

SymbolicValue GraphNodes::reshape(const SymbolicValue& x) {
  if (!x.requires_grad) return x;
  const SymbolicEdge edges[] = {x.gradient()};
  Node view = begin_node(Node::Kind::view, edges);
  finish_node(view);
  SymbolicValue made = x;
  made.edge = {view.first_slot, -1};
  return made;
}

SymbolicValue GraphNodes::cast(const SymbolicValue& x, std::int64_t elements, bool to_half,
                               bool records) {
  SymbolicValue made{allocate(elements, to_half), false, to_half, {}};
  if (!records || !x.requires_grad) return made;
  const SymbolicEdge edges[] = {x.gradient()};
  Node node = begin_node(Node::Kind::cast, edges);
  node.bytes = elements * (to_half ? item_ : 2);
  finish_node(node);
  made.requires_grad = true;
  made.edge = {node.first_slot, -1};
  return made;
}

SymbolicValue GraphNodes::loss(const SymbolicValue& x, std::int64_t elements, const Block& first,
                               const Block& second) {
  SymbolicValue made;
  if (!x.requires_grad) return made;
  const SymbolicEdge edges[] = {x.gradient()};
  Node node = begin_node(Node::Kind::loss, edges);
  node.bytes = elements * item_;
  save(first);
  save(second);
  finish_node(node);
  made.requires_grad = true;
  made.edge = {node.first_slot, -1};
  return made;
}

SymbolicValue GraphNodes::scale(const SymbolicValue& x) {
  const SymbolicEdge edges[] = {x.gradient()};
  Node node = begin_node(Node::Kind::cast, edges);
  node.bytes = item_;
  finish_node(node);
  return {allocate(1), true, false, {node.first_slot, -1}};
}

void GraphNodes::save(const Block& block, bool requires_grad, bool half) {
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
      saved.host = host_->allocate(block.bytes());
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
    case Hooks::Kind::recomputation: {
      Placeholder& wanted = placeholders_[static_cast<std::size_t>(hooks_.next_placeholder)];
      if (wanted.held) wanted.recomputed = block;
      hooks_.next_placeholder = wanted.next;
      const Frame& frame = frames_[static_cast<std::size_t>(hooks_.frame)];
      if (++hooks_.count == frame.saves && frame.segment->choice.early_stop) {
        stopped_ = true;
        return;
      }
      saved.block = block;
      break;
    }
  }
  if (saved.block) saved.block.hold();
  saved_.push_back(std::move(saved));
}

/// The block that a node reads back.
Block GraphNodes::get(int index) {
  const Saved& saved = saved_[static_cast<std::size_t>(index)];
  if (saved.placeholder >= 0) return fetch(saved.placeholder);
  if (saved.host) return heap_->allocate(saved.host.bytes());
  return saved.block;
}

Block GraphNodes::fetch(int placeholder) {
  const int frame = placeholders_[static_cast<std::size_t>(placeholder)].frame;
  if (!frames_[static_cast<std::size_t>(frame)].recomputed) recompute(frame);
  return std::move(placeholders_[static_cast<std::size_t>(placeholder)].recomputed);
}

void GraphNodes::drop(int index) {
  Saved& saved = saved_[static_cast<std::size_t>(index)];
  if (saved.block) saved.block.let_go();
  saved.block.reset();
  saved.host.reset();
  if (saved.placeholder < 0) return;
  Placeholder& placeholder =
      placeholders_[static_cast<std::size_t>(std::exchange(saved.placeholder, -1))];
  placeholder.held = false;
  placeholder.recomputed.reset();
  Frame& frame = frames_[static_cast<std::size_t>(placeholder.frame)];
  if (--frame.holders == 0 && frame.over) drop_frame(placeholder.frame);
}

void GraphNodes::drop_frame(int index) {
  const Frame frame = frames_[static_cast<std::size_t>(index)];
  for (int i = 0; i < frame.inputs; ++i) drop(frame.first_input + i);
  drop_kept(frame);
  drop_log(frame.log);
}

void GraphNodes::drop_log(int log) {
  for (State& state : states_) {
    if (state.log != log || !state.block) continue;
    state.block.let_go();
    state.block.reset();
  }
}

void GraphNodes::drop_kept(const Frame& frame) {
  for (int k = frame.first_kept; k >= 0; k = kept_[static_cast<std::size_t>(k)].next) {
    const Kept& kept = kept_[static_cast<std::size_t>(k)];
    for (int i = kept.first_block; i < kept.first_block + kept.blocks; ++i) {
      Block& block = kept_blocks_[static_cast<std::size_t>(i)];
      if (block) block.let_go();
      block.reset();
    }
  }
}

std::int64_t GraphNodes::parameter_elements(int layer, int position) const {
  const int p =
      geometry_
          ->layer_parameters[static_cast<std::size_t>(layer)][static_cast<std::size_t>(position)];
  return geometry_->parameters[static_cast<std::size_t>(p)].shape.elements();
}

GraphNodes::Mark GraphNodes::mark() const {
  return {nodes_.size(), frames_.size(), placeholders_.size(), kept_.size(),   kept_blocks_.size(),
          edges_.size(), saved_.size(),  slots_.size(),        leaves_.size(), states_.size()};
}

void GraphNodes::release(const Mark& m) {
  for (std::size_t i = saved_.size(); i-- > m.saved;) drop(static_cast<int>(i));
  for (std::size_t i = m.states; i < states_.size(); ++i) {
    if (states_[i].block) states_[i].block.let_go();
  }
  states_.resize(m.states);
  nodes_.resize(m.nodes);
  saved_.resize(m.saved);
  frames_.resize(m.frames);
  placeholders_.resize(m.placeholders);
  kept_.resize(m.kept);
  kept_blocks_.resize(m.kept_blocks);
  edges_.resize(m.edges);
  slots_.resize(m.slots);
  leaves_.resize(m.leaves);
}

}  // namespace rematch
