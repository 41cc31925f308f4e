// Reverse accumulation in a symbolic run.
#include <array>
#include <utility>

#include "properties/forecast/graph_backward.h"
#include "properties/record/mixed.h"

namespace rematch {
namespace {

constexpr std::uint64_t kOnes = 0x9E3779B97F4A7C15ULL;

constexpr std::uint64_t derivative(std::uint64_t gradient, int layer, int edge) {
  return mixed(gradient * 3 + static_cast<std::uint64_t>(layer) * 0x10001 +
               static_cast<std::uint64_t>(edge));
}

}  // namespace

std::uint64_t GraphBackward::sum_of(std::uint64_t a, std::uint64_t b) {
  return mixed(a + b + 0xD1B54A32D192ED03ULL);
}

void GraphBackward::backward(const Mark& from, const Call& call, std::vector<int>& executions,
                             bool first) {
  executions_ = &executions;
  first_ = first;
  find_reached(static_cast<int>(from.nodes), std::array{call.root});
  find_needed(static_cast<int>(from.nodes), call.wanted);
  slots_[static_cast<std::size_t>(call.root.slot)] = {
      heap_->allocate(item_), kOnes + static_cast<std::uint64_t>(call.number)};
  walk(static_cast<int>(from.nodes), 0, call.retain, {});
}

// Notes which of the nodes from `first` on the roots depend on.
void GraphBackward::find_reached(int first, Edges roots) {
  reached_slots_.assign(slots_.size(), false);
  const auto reach = [&](const SymbolicEdge& edge) {
    if (edge.slot >= 0) reached_slots_[static_cast<std::size_t>(edge.slot)] = true;
  };
  for (const SymbolicEdge& root : roots) reach(root);
  for (int n = static_cast<int>(nodes_.size()); n-- > first;) {
    Node& node = nodes_[static_cast<std::size_t>(n)];
    node.reached = false;
    for (int k = 0; k < node.outputs; ++k) {
      node.reached = node.reached || reached_slots_[static_cast<std::size_t>(node.first_slot + k)];
    }
    for (int e = 0; node.reached && e < node.edges; ++e) reach(edge_of(node, e));
  }
}

// Frees tensors that only outputs without a gradient hold.
void GraphBackward::drop_unreached(int first) {
  for (auto n = static_cast<std::size_t>(first); n < nodes_.size(); ++n) {
    const Node node = nodes_[n];
    if (node.reached) continue;
    for (int i = 0; i < node.saved; ++i) drop(node.first_saved + i);
    if (node.log >= 0) drop_log(node.log);
  }
}

// A partial backward runs the nodes that lead to a wanted leaf, with all their gradients. Others
// let go of what arrives.
void GraphBackward::find_needed(int first, const std::vector<bool>& wanted) {
  wanted_leaves_ = wanted;
  needed_slots_.assign(wanted.empty() ? 0 : slots_.size(), false);
  if (wanted.empty()) return;
  for (int n = first; n < static_cast<int>(nodes_.size()); ++n) {
    const Node& node = nodes_[static_cast<std::size_t>(n)];
    bool needed = false;
    bool all = true;
    for (int e = 0; e < node.edges; ++e) {
      const SymbolicEdge edge = edge_of(node, e);
      if (!edge.needed()) continue;
      const bool leads =
          edge.slot >= 0 ? needed_slots_[static_cast<std::size_t>(edge.slot)] : wants(edge.leaf);
      needed = needed || leads;
      all = all && leads;
    }
    // A module may have many nodes. Which of them lead to a part of its tensors, and so whether
    // what they saved is asked for, is not declared.
    const bool module = node.kind == Node::Kind::layer &&
                        case_->layers[static_cast<std::size_t>(node.layer)].layer != nullptr;
    if (module && needed && !all) trace_->facts_unknown = true;
    for (int k = 0; k < node.outputs; ++k) {
      needed_slots_[static_cast<std::size_t>(node.first_slot + k)] = needed;
    }
  }
}

// Differentiates the nodes from `first` on that are reached; the gradients of the roots are there.
void GraphBackward::walk(int first, int depth, bool retain, std::span<const int> leaf_roots) {
  const std::size_t parameters = geometry_->parameters.size();
  if (nested_shares_.size() < static_cast<std::size_t>(depth) * parameters) {
    nested_shares_.resize(static_cast<std::size_t>(depth) * parameters);
  }
  const std::size_t recomputed = recomputed_.size();
  const int end = static_cast<int>(nodes_.size());
  for (int n = first; n < end; ++n) {
    const Node& node = nodes_[static_cast<std::size_t>(n)];
    for (int e = 0; node.reached && e < node.edges; ++e) {
      const int leaf = edge_of(node, e).leaf;
      if (leaf >= 0) ++shares_of(leaf, depth).waiting;
    }
  }
  for (const int leaf : leaf_roots) {
    if (shares_of(leaf, depth).waiting == 0) accumulate(leaf, depth);
  }
  for (int n = end - 1; n >= first; --n) {
    if (nodes_[static_cast<std::size_t>(n)].reached) visit(n, depth, retain);
  }
  // Recomputed tensors that were not used do not outlive the backward.
  for (; recomputed_.size() > recomputed; recomputed_.pop_back()) {
    Frame& frame = frames_[static_cast<std::size_t>(recomputed_.back())];
    frame.recomputed = false;
    for (int p = frame.first_placeholder; p >= 0;
         p = placeholders_[static_cast<std::size_t>(p)].next) {
      placeholders_[static_cast<std::size_t>(p)].recomputed.reset();
    }
  }
}

void GraphBackward::visit(int index, int depth, bool retain) {
  const Node node = nodes_[static_cast<std::size_t>(index)];
  const std::size_t out = hands_.size();
  const std::size_t in = out + static_cast<std::size_t>(node.outputs);
  const auto edges = static_cast<std::size_t>(node.edges);
  bool any = false;
  for (int k = 0; k < node.outputs; ++k) {
    hands_.push_back(std::move(slots_[static_cast<std::size_t>(node.first_slot + k)]));
    any = any || hands_.back();
  }
  any = any && (needed_slots_.empty() || needed_slots_[static_cast<std::size_t>(node.first_slot)]);
  hands_.resize(in + edges);
  // A node that no gradient reaches does not run, so it does not ask for what it saved either.
  if (any) {
    differentiate(node, out, in, depth);
    for (int i = 0; !retain && i < node.saved; ++i) drop(node.first_saved + i);
    if (!retain && node.log >= 0) drop_log(node.log);
    for (std::size_t i = out; i < in; ++i) hands_[i].reset();
  }
  ready_.clear();
  for (int e = 0; e < node.edges; ++e) {
    arrive(edge_of(node, e), std::move(hands_[in + static_cast<std::size_t>(e)]), depth);
  }
  if (any) {
    const bool of_layer = node.kind == Node::Kind::layer || node.kind == Node::Kind::view;
    listener_->on_event(Event::node, of_layer ? node.layer : -1, 0, 0, false);
  }
  hands_.resize(out);
  for (std::size_t i = 0; i < ready_.size(); ++i) accumulate(ready_[i], depth);
}

void GraphBackward::differentiate(const Node& node, std::size_t out, std::size_t in, int depth) {
  switch (node.kind) {
    case Node::Kind::layer:
      return differentiate_layer(node, out, in);
    case Node::Kind::cast:
      // Exact, or rounded, in plain and checkpointed runs alike.
      hands_[in] = {heap_->allocate(node.bytes), hands_[out].formula};
      return;
    case Node::Kind::view:
      hands_[in] = hands_[out];
      return;
    case Node::Kind::loss: {
      const Block read[] = {get(node.first_saved), get(node.first_saved + 1)};
      hands_[in] = {heap_->allocate(node.bytes), hands_[out].formula};
      return;
    }
    case Node::Kind::segment:
      return differentiate_segment(node, out, in, depth);
  }
}

void GraphBackward::differentiate_layer(const Node& node, std::size_t out, std::size_t in) {
  const Layout& l = layouts_[static_cast<std::size_t>(node.layer)];
  std::uint64_t arrived = 0;
  for (std::size_t k = out; k < in; ++k) {
    arrived = arrived * 0x2545F4914F6CDD1DULL + (hands_[k] ? hands_[k].formula : 0);
  }
  const auto wants = [&](int e) { return edge_of(node, e).needed(); };
  const auto give = [&](int e, Block block) {
    hands_[in + static_cast<std::size_t>(e)] = {std::move(block),
                                                derivative(arrived, node.layer, e)};
  };
  switch (facts_->of(node.layer).backward) {
    case BackwardUse::product:
      differentiate_product(node, out, in);
      for (int e = 0; e < node.edges; ++e) {
        hands_[in + static_cast<std::size_t>(e)].formula = derivative(arrived, node.layer, e);
      }
      return;
    case BackwardUse::share:
      for (int e = 0; e < node.edges; ++e) {
        if (wants(e)) give(e, hands_[out].block);
      }
      return;
    case BackwardUse::join:
      for (int k = 0; k < l.outputs; ++k) {
        Block& gradient = hands_[out + static_cast<std::size_t>(k)].block;
        if (!gradient) {
          gradient = allocate(output_elements_[static_cast<std::size_t>(l.first_output + k)]);
        }
      }
      break;
    case BackwardUse::pointwise:
      break;
  }
  const std::size_t read = results_.size();
  for (int i = 0; i < node.saved; ++i) {
    Block block = get(node.first_saved + i);
    results_.push_back(std::move(block));
  }
  for (int e = 0; e < node.edges; ++e) {
    if (!wants(e)) continue;
    const int p = e - l.operands;
    give(e, allocate(p < 0 ? operand_elements_[static_cast<std::size_t>(l.first_operand + e)]
                           : parameter_elements(node.layer, p)));
  }
  results_.resize(read);
}

// y = x w + b: one gradient after the other, each with the saved tensor and workspace that it
// needs.
void GraphBackward::differentiate_product(const Node& node, std::size_t out, std::size_t in) {
  const LayerFacts& f = facts_->of(node.layer);
  const Layout& l = layouts_[static_cast<std::size_t>(node.layer)];
  const bool low = f.low_precision;
  const auto needs = [&](int e) { return e < node.edges && edge_of(node, e).needed(); };
  const auto upcast = [&](Block half, std::int64_t elements) {
    return low ? allocate(elements) : std::move(half);
  };
  const auto workspace = [&] { return f.workspace > 0 ? heap_->allocate(f.workspace) : Block(); };
  const auto make = [&](std::size_t e, std::int64_t elements) {
    hands_[in + e].block = allocate(elements);
  };
  const auto round = [&](std::size_t e, std::int64_t elements) {
    if (low) hands_[in + e].block = allocate(elements, true);
  };
  const std::int64_t x = operand_elements_[static_cast<std::size_t>(l.first_operand)];
  const std::int64_t y = output_elements_[static_cast<std::size_t>(l.first_output)];
  const std::int64_t w = parameter_elements(node.layer, 0);
  const Block gradient = upcast(std::move(hands_[out].block), y);
  // Measured facts may lack what only this run saves; its bytes are unknown then.
  const auto saved = [&](int i) { return i < node.saved ? get(node.first_saved + i) : Block(); };
  if (needs(0)) {
    const Block weight = upcast(saved(needs(1) ? 1 : 0), w);
    const Block scratch = workspace();
    make(0, x);
    round(0, x);
  }
  if (needs(1)) {
    const Block operand = upcast(saved(0), x);
    const Block scratch = workspace();
    make(1, w);
    round(1, w);
  }
  if (needs(2)) {
    make(2, parameter_elements(node.layer, 1));
    round(2, parameter_elements(node.layer, 1));
  }
}

void GraphBackward::arrive(const SymbolicEdge& edge, SymbolicGradient gradient, int depth) {
  if (edge.slot >= 0) {
    add(slots_[static_cast<std::size_t>(edge.slot)], std::move(gradient));
  } else if (edge.leaf >= 0) {
    Leaf& shares = shares_of(edge.leaf, depth);
    add(shares.sum, std::move(gradient));
    if (--shares.waiting == 0) ready_.push_back(edge.leaf);
  }
}

/// In place if nothing else holds the sum.
void GraphBackward::add(SymbolicGradient& sum, SymbolicGradient gradient) {
  if (!gradient) return;
  if (!sum) {
    sum = std::move(gradient);
    return;
  }
  sum.formula = sum_of(sum.formula, gradient.formula);
  if (!sum.block.alone()) sum.block = heap_->allocate(sum.block.bytes());
}

void GraphBackward::accumulate(int leaf, int depth) {
  {
    SymbolicGradient gradient = std::move(shares_of(leaf, depth).sum);
    const auto index = static_cast<std::size_t>(leaf);
    if (!gradient || !wants(leaf)) return;
    SymbolicGradient& held = leaves_[index].gradient;
    held.formula = held ? sum_of(held.formula, gradient.formula) : gradient.formula;
    if (!held) {
      held.block = gradient.block.alone() ? std::move(gradient.block)
                                          : heap_->allocate(gradient.block.bytes());
    }
    if (first_ && index < trace_->hooks.size()) ++trace_->hooks[index];
  }
  listener_->on_event(Event::gradient, -1, 0, 0, false);
}

/// The gradient in flight to a leaf. A parameter may have one in each of the nested backwards.
GraphBackward::Leaf& GraphBackward::shares_of(int leaf, int depth) {
  const std::size_t parameters = geometry_->parameters.size();
  const auto index = static_cast<std::size_t>(leaf);
  if (depth == 0 || index >= parameters) return leaves_[index];
  return nested_shares_[static_cast<std::size_t>(depth - 1) * parameters + index];
}

}  // namespace rematch
