#include <utility>

#include "properties/forecast/symbolic_memory.h"

namespace rematch {

// Differentiates the nodes from `first` on; the gradients of the roots are there.
void SymbolicMemory::walk(int first, int depth, bool retain, std::span<const int> leaf_roots) {
  const std::size_t parameters = geometry_->parameters.size();
  if (nested_shares_.size() < static_cast<std::size_t>(depth) * parameters) {
    nested_shares_.resize(static_cast<std::size_t>(depth) * parameters);
  }
  const std::size_t replayed = replayed_.size();
  const int end = static_cast<int>(nodes_.size());
  for (int n = first; n < end; ++n) {
    const Node& node = nodes_[static_cast<std::size_t>(n)];
    for (int e = 0; e < node.edges; ++e) {
      const int leaf = edges_[static_cast<std::size_t>(node.first_edge + e)].leaf;
      if (leaf >= 0) ++shares_of(leaf, depth).waiting;
    }
  }
  for (const int leaf : leaf_roots) {
    if (shares_of(leaf, depth).waiting == 0) accumulate(leaf, depth);
  }
  for (int n = end - 1; n >= first; --n) visit(n, depth, retain);
  // What was recomputed and not used does not outlive the backward.
  for (; replayed_.size() > replayed; replayed_.pop_back()) {
    Frame& frame = frames_[static_cast<std::size_t>(replayed_.back())];
    frame.replayed = false;
    for (int p = frame.first_placeholder; p >= 0;
         p = placeholders_[static_cast<std::size_t>(p)].next) {
      placeholders_[static_cast<std::size_t>(p)].recomputed.reset();
    }
  }
}

void SymbolicMemory::visit(int index, int depth, bool retain) {
  const Node node = nodes_[static_cast<std::size_t>(index)];
  const std::size_t out = hands_.size();
  const std::size_t in = out + static_cast<std::size_t>(node.outputs);
  const auto edges = static_cast<std::size_t>(node.edges);
  bool any = false;
  for (int k = 0; k < node.outputs; ++k) {
    hands_.push_back(std::move(slots_[static_cast<std::size_t>(node.first_slot + k)]));
    any = any || hands_.back();
  }
  hands_.resize(in + edges);
  if (any) {
    differentiate(node, out, in, depth);
    for (int i = 0; !retain && i < node.saved; ++i) drop(node.first_saved + i);
    for (std::size_t i = out; i < in; ++i) hands_[i].reset();
  }
  ready_.clear();
  for (std::size_t e = 0; e < edges; ++e) {
    arrive(edges_[static_cast<std::size_t>(node.first_edge) + e], std::move(hands_[in + e]), depth);
  }
  if (any)
    note(Event::node,
         node.kind == Node::Kind::layer || node.kind == Node::Kind::view ? node.layer : -1);
  hands_.resize(out);
  for (std::size_t i = 0; i < ready_.size(); ++i) accumulate(ready_[i], depth);
}

void SymbolicMemory::differentiate(const Node& node, std::size_t out, std::size_t in, int depth) {
  switch (node.kind) {
    case Node::Kind::leaves:
      return;
    case Node::Kind::layer:
      return differentiate_layer(node, out, in);
    case Node::Kind::cast:
      hands_[in] = heap_.allocate(node.bytes);
      return;
    case Node::Kind::view:
      hands_[in] = hands_[out];
      return;
    case Node::Kind::loss: {
      const Block read[] = {get(node.first_saved), get(node.first_saved + 1)};
      hands_[in] = heap_.allocate(node.bytes);
      return;
    }
    case Node::Kind::region:
      return differentiate_region(node, out, in, depth);
  }
}

void SymbolicMemory::differentiate_layer(const Node& node, std::size_t out, std::size_t in) {
  const auto index = static_cast<std::size_t>(node.layer);
  const ByteRule& bytes = bytes_[index];
  const auto edge = [&](int e) { return edges_[static_cast<std::size_t>(node.first_edge + e)]; };
  switch (bytes.vjp) {
    case Vjp::product:
      return differentiate_product(node, out, in);
    case Vjp::share:
      for (int e = 0; e < node.edges; ++e) {
        if (edge(e).needed()) hands_[in + static_cast<std::size_t>(e)] = hands_[out];
      }
      return;
    case Vjp::join:
      for (std::size_t k = 0; k < 2; ++k) {
        if (!hands_[out + k]) hands_[out + k] = allocate(bytes.outputs[k]);
      }
      hands_[in] = allocate(bytes.operands[0]);
      return;
    case Vjp::pointwise:
      break;
  }
  Block read[4];
  for (int i = 0; i < node.saved; ++i) read[i] = get(node.first_saved + i);
  const bool two = bytes.other >= 0;
  for (int e = 0; e < node.edges; ++e) {
    if (!edge(e).needed()) continue;
    const std::int64_t elements = e == 0 ? bytes.operands[0]
                                  : two  ? bytes.operands[1]
                                         : bytes.parameters[e - 1];
    hands_[in + static_cast<std::size_t>(e)] = allocate(elements);
  }
}

void SymbolicMemory::differentiate_product(const Node& node, std::size_t out, std::size_t in) {
  const auto index = static_cast<std::size_t>(node.layer);
  const ByteRule& bytes = bytes_[index];
  const bool low = rules_[index].low;
  const auto needs = [&](int e) {
    return e < node.edges && edges_[static_cast<std::size_t>(node.first_edge + e)].needed();
  };
  const auto widened = [&](Block narrow, std::int64_t elements) {
    return low ? allocate(elements) : std::move(narrow);
  };
  const auto rounded = [&](std::size_t e, std::int64_t elements) {
    if (low) hands_[in + e] = allocate(elements, true);
  };
  const Block gradient = widened(std::move(hands_[out]), bytes.outputs[0]);
  const int saved_weight = node.first_saved + (needs(1) ? 1 : 0);
  if (needs(0)) {
    const Block weight = widened(get(saved_weight), bytes.parameters[0]);
    const Block scratch = bytes.scratch > 0 ? allocate(bytes.scratch) : Block();
    hands_[in] = allocate(bytes.operands[0]);
    rounded(0, bytes.operands[0]);
  }
  if (needs(1)) {
    const Block x = widened(get(node.first_saved), bytes.operands[0]);
    const Block scratch = bytes.scratch > 0 ? allocate(bytes.scratch) : Block();
    hands_[in + 1] = allocate(bytes.parameters[0]);
    rounded(1, bytes.parameters[0]);
  }
  if (needs(2)) {
    hands_[in + 2] = allocate(bytes.parameters[1]);
    rounded(2, bytes.parameters[1]);
  }
}

// Runs the region with grad mode on leaves of its own and differentiates that graph.
void SymbolicMemory::differentiate_region(const Node& node, std::size_t out, std::size_t in,
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
  run_region_again(*node.region, outputs, {});

  const auto gets_gradient = [&](std::size_t k) {
    return hands_[out + k] && stack_[outputs + k].requires_grad;
  };
  const auto count = static_cast<std::size_t>(node.outputs);
  // All outputs that nothing arrived for go before the first gradient is added to another.
  for (std::size_t k = 0; k < count; ++k) {
    if (!gets_gradient(k)) stack_[outputs + k] = {};
  }
  std::vector<int> leaf_roots;
  for (std::size_t k = 0; k < count; ++k) {
    if (!gets_gradient(k)) continue;
    const Edge root = stack_[outputs + k].edge;
    Block& sum = root.slot >= 0 ? slots_[static_cast<std::size_t>(root.slot)]
                                : shares_of(root.leaf, depth + 1).sum;
    if (root.leaf >= 0) leaf_roots.push_back(root.leaf);
    sum = sum ? heap_.allocate(sum.bytes()) : hands_[out + k];
  }
  walk(first, depth + 1, false, leaf_roots);
  for (int i = 0; i < node.edges; ++i) {
    const int leaf = stack_[bound + static_cast<std::size_t>(i)].edge.leaf;
    hands_[in + static_cast<std::size_t>(i)] = leaves_[static_cast<std::size_t>(leaf)].gradient;
  }
  stack_.resize(bound);
  release(before);
}

void SymbolicMemory::arrive(const Edge& edge, Block gradient, int depth) {
  if (edge.slot >= 0) {
    add(slots_[static_cast<std::size_t>(edge.slot)], std::move(gradient), heap_);
  } else if (edge.leaf >= 0) {
    Leaf& shares = shares_of(edge.leaf, depth);
    add(shares.sum, std::move(gradient), heap_);
    if (--shares.waiting == 0) ready_.push_back(edge.leaf);
  }
}

void SymbolicMemory::add(Block& sum, Block gradient, SymbolicHeap& heap) {
  if (!gradient) return;
  if (!sum) {
    sum = std::move(gradient);
  } else if (!sum.alone()) {
    sum = heap.allocate(sum.bytes());
  }
}

void SymbolicMemory::accumulate(int leaf, int depth) {
  {
    Block gradient = std::move(shares_of(leaf, depth).sum);
    if (!gradient) return;
    Block& held = leaves_[static_cast<std::size_t>(leaf)].gradient;
    if (!held) held = gradient.alone() ? std::move(gradient) : heap_.allocate(gradient.bytes());
  }
  note(Event::gradient);
}

/// The gradient under way to a leaf. A parameter may have one in each of the nested backwards.
SymbolicMemory::Leaf& SymbolicMemory::shares_of(int leaf, int depth) {
  const std::size_t parameters = geometry_->parameters.size();
  const auto index = static_cast<std::size_t>(leaf);
  if (depth == 0 || index >= parameters) return leaves_[index];
  return nested_shares_[static_cast<std::size_t>(depth - 1) * parameters + index];
}

// The inputs come first: where they are placeholders themselves, their frame is replayed.
void SymbolicMemory::replay(int index) {
  frames_[static_cast<std::size_t>(index)].replayed = true;
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
      std::exchange(policy_frame_, frame.region->choice.keep.empty() ? -1 : index);
  const bool outer_recalls = std::exchange(recalls_, true);
  run_region_again(*frame.region, window, {Hooks::Kind::replay, index, frame.first_placeholder, 0});
  recalls_ = outer_recalls;
  policy_frame_ = outer_policy;
  stopped_ = false;
  stack_.resize(bound);
  release(before);
  for (int k = frame.first_kept; k >= 0; k = kept_[static_cast<std::size_t>(k)].next) {
    for (Block& block : kept_[static_cast<std::size_t>(k)].blocks) block.reset();
  }
  replayed_.push_back(index);
}

/// A live cast cache goes on being used, else the replay has one of its own.
void SymbolicMemory::run_region_again(const SegmentSpec& region, std::size_t window,
                                      const Hooks& hooks) {
  const Hooks outer = std::exchange(hooks_, hooks);
  CastCache* const outer_cache = cache_;
  if (cache_ == nullptr) cache_ = &replay_cache_;
  replays_.push_back(events_->size());
  run_layers(region.begin, region.end, region.nested, true, window);
  if (outer_cache == nullptr) replay_cache_.clear();
  cache_ = outer_cache;
  hooks_ = outer;
}

/// What a node reads back.
Block SymbolicMemory::get(int index) {
  const Saved& saved = saved_[static_cast<std::size_t>(index)];
  if (saved.placeholder >= 0) return fetch(saved.placeholder);
  if (saved.host) return heap_.allocate(saved.host.bytes());
  return saved.block;
}

Block SymbolicMemory::fetch(int placeholder) {
  const int frame = placeholders_[static_cast<std::size_t>(placeholder)].frame;
  if (!frames_[static_cast<std::size_t>(frame)].replayed) replay(frame);
  return std::move(placeholders_[static_cast<std::size_t>(placeholder)].recomputed);
}

void SymbolicMemory::drop(int index) {
  Saved& saved = saved_[static_cast<std::size_t>(index)];
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

void SymbolicMemory::drop_frame(int index) {
  const Frame& frame = frames_[static_cast<std::size_t>(index)];
  for (int i = 0; i < frame.inputs; ++i) drop(frame.first_input + i);
  for (int k = frame.first_kept; k >= 0; k = kept_[static_cast<std::size_t>(k)].next) {
    for (Block& block : kept_[static_cast<std::size_t>(k)].blocks) block.reset();
  }
}

SymbolicMemory::Mark SymbolicMemory::mark() const {
  return {nodes_.size(), frames_.size(), placeholders_.size(), kept_.size(),
          edges_.size(), saved_.size(),  slots_.size(),        leaves_.size()};
}

void SymbolicMemory::release(const Mark& m) {
  for (std::size_t i = saved_.size(); i-- > m.saved;) drop(static_cast<int>(i));
  nodes_.resize(m.nodes);
  saved_.resize(m.saved);
  frames_.resize(m.frames);
  placeholders_.resize(m.placeholders);
  kept_.resize(m.kept);
  edges_.resize(m.edges);
  slots_.resize(m.slots);
  leaves_.resize(m.leaves);
}

int SymbolicMemory::add_leaf() {
  leaves_.emplace_back();
  return static_cast<int>(leaves_.size()) - 1;
}

}  // namespace rematch
