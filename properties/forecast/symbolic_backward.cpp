#include <cstddef>
#include <utility>

#include "properties/forecast/symbolic_run.h"

namespace rematch {
namespace {

constexpr std::uint64_t kLossGradient = 0x9E3779B97F4A7C15ULL;

// The finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014); never 0.
constexpr std::uint64_t scramble(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return (x ^ (x >> 31)) | 1;
}

constexpr std::uint64_t vjp(std::uint64_t gradient, int layer, int operand) {
  return scramble(gradient * 3 + static_cast<std::uint64_t>(layer) * 16 +
                  static_cast<std::uint64_t>(operand) + kLossGradient);
}

constexpr std::uint64_t sum(std::uint64_t a, std::uint64_t b) {
  if (a == 0 || b == 0) return a + b;
  return scramble(a + b + 0xD1B54A32D192ED03ULL);
}

}  // namespace

void SymbolicRun::backward() {
  const Value main = value({static_cast<int>(rules_.size()) - 1, 0});
  if (!main.requires_grad) return;
  deliver(main, kLossGradient);
  walk(0, 0);
  if (input_requires_grad_) {
    input_gradient_ = gradients_[static_cast<std::size_t>(nodes_[0].first_gradient)];
  }
}

// Differentiates the graph that lies on the stack above its leaves; the gradients of its roots
// have been delivered.
void SymbolicRun::walk(int leaves, int depth) {
  const std::size_t needed = static_cast<std::size_t>(depth + 1) * hooks_.size();
  if (awaited_.size() < needed) {
    awaited_.resize(needed, 0);
    sums_.resize(needed, 0);
  }
  const int newest = static_cast<int>(nodes_.size()) - 1;
  for (int n = newest; n > leaves; --n) {
    expect_shares(depth, nodes_[static_cast<std::size_t>(n)].layer);
  }
  for (int n = newest; n > leaves; --n) {
    const Node node = nodes_[static_cast<std::size_t>(n)];
    visit(node, depth);
  }
}

void SymbolicRun::visit(const Node& node, int depth) {
  std::uint64_t gradient = 0;
  bool any = false;
  for (int k = 0; k < node.outputs; ++k) {
    const std::uint64_t g = gradients_[static_cast<std::size_t>(node.first_gradient + k)];
    any = any || g != 0;
    gradient = gradient * 0x2545F4914F6CDD1DULL + g;
  }
  // A node that no gradient reaches does not run, so it does not ask for what it saved either.
  if (any && node.frame >= 0) replay(node.frame);
  if (node.region != nullptr) {
    if (any) replay_reentrant(node, depth);
    return;
  }
  const LayerRule& rule = rules_[static_cast<std::size_t>(node.layer)];
  const auto operand_at = [&](int j) -> const Value& {
    return operands_[static_cast<std::size_t>(node.first_operand + j)];
  };
  // Two that were widened get theirs through casts, of which the later one is visited first.
  const bool casts = node.operands == 2 && operand_at(0).cast && operand_at(1).cast;
  for (int i = 0; any && i < node.operands; ++i) {
    const int j = casts ? node.operands - 1 - i : i;
    deliver(operand_at(j), vjp(gradient, node.layer, j));
  }
  if (!rule.trainable || detached_[static_cast<std::size_t>(node.layer)] != 0) return;
  int operand = 2;
  for (const int p : rule.parameters) {
    take_share(depth, p, any ? vjp(gradient, node.layer, operand) : 0);
    ++operand;
  }
}

// The first saved tensor that a backward wants back from a frame runs the region again; later ones
// find theirs. The inputs come first: where they are placeholders themselves, their frame is
// replayed. The graph that a replay builds is of no use and goes away with it.
void SymbolicRun::replay(int index) {
  if (std::exchange(frames_[static_cast<std::size_t>(index)].replayed, true)) return;
  const Frame frame = frames_[static_cast<std::size_t>(index)];
  if (frame.parent >= 0) replay(frame.parent);

  const Mark before = mark();
  const SegmentSpec& region = *frame.region;
  Frame again;
  again.region = frame.region;
  again.recalls = true;
  again.stop_after = region.choice.early_stop ? frame.saves : 0;
  frames_.push_back(again);
  int input = frame.first_input;
  for (const ValueRef& v : geometry_->live[static_cast<std::size_t>(region.begin)]) {
    value(v) = operands_[static_cast<std::size_t>(input++)];
  }
  const int outer_frame = std::exchange(frame_, static_cast<int>(frames_.size()) - 1);
  const bool outer_afresh = std::exchange(afresh_, !region.choice.preserve_rng);
  run(region.begin, region.end, region.nested, true);
  afresh_ = outer_afresh;
  frame_ = outer_frame;
  stopped_ = false;
  release(before);
}

// Runs the region with grad mode on leaves of its own, differentiates that graph at once, and
// returns the gradients of the leaves. Parameters get theirs on the way.
void SymbolicRun::replay_reentrant(const Node& node, int depth) {
  const Mark before = mark();
  const SegmentSpec& region = *node.region;
  const int leaves = static_cast<int>(nodes_.size());
  Node bound;
  bound.outputs = node.operands;
  bound.first_gradient = add_gradients(node.operands);
  nodes_.push_back(bound);
  int j = 0;
  for (const ValueRef& v : geometry_->live[static_cast<std::size_t>(region.begin)]) {
    const Value& input = operands_[static_cast<std::size_t>(node.first_operand + j)];
    value(v) = {input.storage, bound.first_gradient + j, input.requires_grad};
    ++j;
  }
  const int outer_frame = std::exchange(frame_, -1);
  const bool outer_afresh = std::exchange(afresh_, !region.choice.preserve_rng);
  run(region.begin, region.end, region.nested, true);
  afresh_ = outer_afresh;
  frame_ = outer_frame;

  int output = node.first_gradient;
  for (const ValueRef& v : geometry_->live[static_cast<std::size_t>(region.end)]) {
    deliver(value(v), gradients_[static_cast<std::size_t>(output++)]);
  }
  walk(leaves, depth + 1);
  for (j = 0; j < node.operands; ++j) {
    deliver(operands_[static_cast<std::size_t>(node.first_operand + j)],
            gradients_[static_cast<std::size_t>(bound.first_gradient + j)]);
  }
  release(before);
}

void SymbolicRun::deliver(const Value& to, std::uint64_t gradient) {
  if (!to.requires_grad) return;
  std::uint64_t& slot = gradients_[static_cast<std::size_t>(to.gradient)];
  slot = sum(slot, gradient);
}

void SymbolicRun::expect_shares(int depth, int layer) {
  if (layer < 0 || detached_[static_cast<std::size_t>(layer)] != 0) return;
  const LayerRule& rule = rules_[static_cast<std::size_t>(layer)];
  if (!rule.trainable) return;
  for (const int p : rule.parameters) {
    ++awaited_[static_cast<std::size_t>(depth) * hooks_.size() + static_cast<std::size_t>(p)];
  }
}

void SymbolicRun::take_share(int depth, int parameter, std::uint64_t gradient) {
  const auto p = static_cast<std::size_t>(parameter);
  const std::size_t at = static_cast<std::size_t>(depth) * hooks_.size() + p;
  sums_[at] = sum(sums_[at], gradient);
  if (--awaited_[at] > 0) return;
  const std::uint64_t total = std::exchange(sums_[at], 0);
  if (total == 0) return;
  ++hooks_[p];
  on_empty_[p] = sum(on_empty_[p], total);
  on_older_[p] = sum(on_older_[p], total);
}

SymbolicRun::Mark SymbolicRun::mark() const {
  return {nodes_.size(), frames_.size(), operands_.size(), gradients_.size(), storages_.size()};
}

void SymbolicRun::release(const Mark& m) {
  nodes_.resize(m.nodes);
  frames_.resize(m.frames);
  operands_.resize(m.operands);
  gradients_.resize(m.gradients);
  storages_.resize(m.storages);
}

}  // namespace rematch
