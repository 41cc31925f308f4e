#include "properties/forecast/symbolic_memory.h"

#include <algorithm>

namespace rematch {
namespace {

/// A class is an int32.
constexpr std::int64_t kClassBytes = 4;

}  // namespace

void SymbolicMemory::bind(const Case& c, const Geometry& geometry, std::span<const LayerRule> rules,
                          bool host_kernels) {
  case_ = &c;
  geometry_ = &geometry;
  rules_ = rules;
  item_ = static_cast<std::int64_t>(size_of(c.dtype));
  bytes_.clear();
  moves_.clear();
  first_move_.clear();
  const int layers = static_cast<int>(c.layers.size());
  for (int i = 0; i < layers; ++i) {
    bytes_.push_back(byte_rule_of(c, geometry, i, host_kernels));
    first_move_.push_back(static_cast<int>(moves_.size()));
    const auto& before = geometry.live[static_cast<std::size_t>(i)];
    for (const ValueRef& v : geometry.live[static_cast<std::size_t>(i) + 1]) {
      const auto at = std::find(before.begin(), before.end(), v) - before.begin();
      moves_.push_back(v.layer == i ? -1 - v.output : static_cast<int>(at));
    }
  }
  first_move_.push_back(static_cast<int>(moves_.size()));
}

void SymbolicMemory::run(std::span<const SegmentSpec> segments, std::span<const int> detached,
                         bool offload, std::vector<LiveReading>& events) {
  segments_ = segments;
  offload_ = offload;
  events_ = &events;
  replays_.clear();
  detached_.assign(rules_.size(), 0);
  for (const int layer : detached) detached_[static_cast<std::size_t>(layer)] = 1;
  const std::size_t parameters = geometry_->parameters.size();
  leaves_.assign(parameters, {});
  nested_shares_.clear();
  scope_cache_.values.assign(parameters, {});
  replay_cache_.values.assign(parameters, {});
  cache_ = nullptr;

  std::int64_t elements = 0;
  for (const ParameterInfo& p : geometry_->parameters) elements += p.shape.elements();
  for (const ParameterInfo& b : geometry_->buffers) elements += b.shape.elements();
  model_ = heap_.allocate(elements * item_, false);
  constant_ = heap_.allocate(0, false);
  state_.assign(parameters, {});
  for (std::size_t p = 0; p < parameters; ++p) {
    const ParameterInfo& info = geometry_->parameters[p];
    if (!case_->protocol.prior_gradients || info.frozen) continue;
    leaves_[p].gradient = heap_.allocate(info.shape.elements() * item_);
  }
  for (int step = 0; step < std::min(case_->protocol.steps, 2); ++step) run_step(step);
  state_.clear();
  leaves_.clear();
  constant_.reset();
  model_.reset();
}

void SymbolicMemory::run_step(int step) {
  const ProtocolSpec& p = case_->protocol;
  step_ = step;
  heap_.reset_peak();
  passes_.assign(static_cast<std::size_t>(p.microbatches), {});
  executions_.assign(static_cast<std::size_t>(p.microbatches) * rules_.size(), 0);
  const Mark before = mark();
  for (int m = 0; m < p.microbatches; ++m) {
    run_forward(m);
    if (!p.forwards_first) run_backward(m);
  }
  if (p.forwards_first) {
    for (int m = p.microbatches - 1; m >= 0; --m) run_backward(m);
  }
  passes_.clear();
  release(before);
  step_optimizer();
  pass_ = 0;
  note(Event::step);
  if (!p.zero_grad) return;
  for (Leaf& leaf : leaves_) leaf.gradient.reset();
}

void SymbolicMemory::run_forward(int number) {
  pass_ = number;
  Pass& pass = passes_[static_cast<std::size_t>(number)];
  const ProtocolSpec& p = case_->protocol;
  pass.input = heap_.allocate(Shape(std::span(case_->input)).elements() * item_, false);
  const int leaf = add_leaf();
  pass.graph = mark();
  cache_ = p.autocast != AutocastSpan::off ? &scope_cache_ : nullptr;
  hooks_.kind = offload_ ? Hooks::Kind::offload : Hooks::Kind::none;
  stack_.push_back({pass.input, p.input_requires_grad, false, {-1, leaf}});
  run_layers(0, static_cast<int>(rules_.size()), segments_, true, 0);
  hooks_ = {};
  offload_source_.reset();

  const Shape& shape = geometry_->outputs.back()[0];
  const Block target = p.loss == LossKind::mse ? heap_.allocate(shape.elements() * item_, false)
                                               : heap_.allocate(shape[0] * kClassBytes, false);
  run_loss(pass, shape, target);
  scope_cache_.clear();
  cache_ = nullptr;
  note(Event::forward);
  stack_.clear();
}

void SymbolicMemory::run_loss(Pass& pass, const Shape& shape, const Block& target) {
  Value main = stack_[0];
  if (shape.rank() != 2 && main.requires_grad) {
    const Edge edges[] = {main.gradient()};
    Node view = begin_node(Node::Kind::view, edges);
    finish_node(view);
    main.edge = {view.first_slot, -1};
  }
  const std::int64_t elements = shape.elements();
  if (main.half) main = cast(main, elements, false, true);
  pass.loss = heap_.allocate(item_);
  const bool squares = case_->protocol.loss == LossKind::mse;
  const Block kept = squares ? main.block : heap_.allocate(elements * item_);
  pass.requires_grad = main.requires_grad;
  if (!main.requires_grad) return;
  const Edge edges[] = {main.gradient()};
  Node loss = begin_node(Node::Kind::loss, edges);
  loss.bytes = elements * item_;
  save(kept);
  save(target);
  finish_node(loss);
  pass.root = {loss.first_slot, -1};
}

void SymbolicMemory::run_backward(int number) {
  pass_ = number;
  Pass& pass = passes_[static_cast<std::size_t>(number)];
  const ProtocolSpec& p = case_->protocol;
  for (int i = 0; i < p.backwards && pass.requires_grad; ++i) {
    cache_ = p.autocast == AutocastSpan::both ? &scope_cache_ : nullptr;
    slots_[static_cast<std::size_t>(pass.root.slot)] = heap_.allocate(item_);
    walk(static_cast<int>(pass.graph.nodes), 0, i + 1 < p.backwards, {});
    scope_cache_.clear();
    cache_ = nullptr;
    note(Event::backward);
  }
  pass.loss.reset();
  // The graph goes with the loss, the gradients of inputs stay.
  pass.graph.leaves = leaves_.size();
  release(pass.graph);
  note(Event::graph);
}

void SymbolicMemory::step_optimizer() {
  const ProtocolSpec& p = case_->protocol;
  const int tensors = p.optimizer == OptimizerKind::adam ? 2 : p.momentum != 0 ? 1 : 0;
  for (std::size_t i = 0; i < state_.size(); ++i) {
    if (tensors == 0 || state_[i] || !leaves_[i].gradient) continue;
    state_[i] = heap_.allocate(tensors * geometry_->parameters[i].shape.elements() * item_, false);
  }
}

void SymbolicMemory::note(Event event, int layer, int execution, std::int64_t entered) {
  events_->push_back({event, step_, event == Event::step ? 0 : pass_, layer, execution, entered,
                      heap_.live(), heap_.peak(), host_.live()});
  heap_.reset_peak();
}

}  // namespace rematch
