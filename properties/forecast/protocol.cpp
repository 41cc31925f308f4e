#include "properties/forecast/protocol.h"

#include <algorithm>
#include <utility>

namespace rematch {
namespace {

/// Classes and tokens are int32.
constexpr std::int64_t kIndexBytes = 4;
/// The formula of a gradient that was there before the first step.
constexpr std::uint64_t kPrior = 1;

}  // namespace

void SymbolicProtocol::bind(const Case& c, const Geometry& geometry, const Facts& facts) {
  case_ = &c;
  geometry_ = &geometry;
  item_ = static_cast<std::int64_t>(size_of(c.dtype));
  graph_.bind(c, geometry, facts);
}

void SymbolicProtocol::run(std::span<const SegmentSpec> segments, std::span<const int> detached,
                           bool offload, Trace& trace, const Trace* measured) {
  offload_ = offload;
  trace_ = &trace;
  trace.clear();
  const std::size_t parameters = geometry_->parameters.size();
  trace.computations.assign(case_->layers.size(), 0);
  trace.hooks.assign(parameters, 0);
  trace.grad_flags.resize(case_->layers.size());
  trace.recorded_with.assign(case_->layers.size(), 0);
  trace.saves_unknown.assign(case_->layers.size(), false);
  graph_.begin(segments, detached, heap_, host_, trace, measured, *this);

  std::int64_t elements = 0;
  for (const ParameterInfo& p : geometry_->parameters) elements += p.shape.elements();
  for (const ParameterInfo& b : geometry_->buffers) elements += b.shape.elements();
  model_ = heap_.allocate(elements * item_, false);
  wanted_.clear();
  state_.assign(parameters, {});
  for (std::size_t p = 0; p < parameters; ++p) {
    const ParameterInfo& info = geometry_->parameters[p];
    if (!case_->protocol.prior_gradients || info.frozen) continue;
    graph_.gradient_of(static_cast<int>(p)) = {heap_.allocate(info.shape.elements() * item_),
                                               kPrior};
  }
  for (int step = 0; step < std::min(case_->protocol.steps, 2); ++step) run_step(step);
  state_.clear();
  graph_.end();
  model_.reset();
}

void SymbolicProtocol::run_step(int step) {
  const ProtocolSpec& p = case_->protocol;
  step_ = step;
  heap_.reset_peak();
  forwards_.assign(static_cast<std::size_t>(p.microbatches), {});
  const SymbolicGraph::Mark before = graph_.mark();
  for (int m = 0; m < p.microbatches; ++m) {
    run_forward(m);
    if (!p.forwards_first) run_backward(m);
  }
  if (p.forwards_first) {
    for (int m = p.microbatches - 1; m >= 0; --m) run_backward(m);
  }
  note_gradients();
  forwards_.clear();
  graph_.release(before);
  step_optimizer();
  microbatch_ = 0;
  emit(Event::step);
  if (!p.zero_grad) return;
  for (int i = 0; i < static_cast<int>(state_.size()); ++i) graph_.gradient_of(i) = {};
}

void SymbolicProtocol::run_forward(int microbatch) {
  microbatch_ = microbatch;
  Forward& f = forward(microbatch);
  const ProtocolSpec& p = case_->protocol;
  const std::int64_t item = vocabulary_of(case_->layers) > 0 ? kIndexBytes : item_;
  f.inputs.clear();
  for (int i = 0; i < geometry_->inputs; ++i) {
    const Block block = heap_.allocate(Shape(std::span(case_->input)).elements() * item, false);
    f.inputs.push_back({block, requires_grad(p, i), false, {-1, graph_.add_leaf()}});
  }
  f.graph = graph_.mark();
  f.executions.assign(case_->layers.size(), 0);
  if (p.autocast != AutocastSpan::off) graph_.enter_autocast();
  graph_.run_model(f.inputs,
                   offload_ ? SymbolicGraph::Saving::offloaded : SymbolicGraph::Saving::kept,
                   f.executions, is_first(microbatch));
  if (is_first(microbatch)) {
    for (std::size_t i = 0; i < graph_.outputs(); ++i) {
      trace_->output_flags.push_back(graph_.output(i).requires_grad);
    }
  }
  // Targets and losses, to the end of the forward.
  std::vector<Block> held;
  const std::size_t losses = p.auxiliary_losses ? graph_.outputs() : 1;
  for (std::size_t i = 0; i < losses; ++i) run_loss(f, i, held);
  graph_.leave_autocast();
  if (p.loss_scale != 0) {
    for (SymbolicValue& loss : f.losses) loss = graph_.scale(loss);
  }
  if (is_first(microbatch)) {
    trace_->saved_bytes = heap_.saved();
    trace_->offloaded_bytes = host_.live();
  }
  emit(Event::forward);
  graph_.drop_outputs();
}

// mse saves its operand and the target, upcast if it is bfloat16; cross entropy its
// log-probabilities, as many as the operand has elements.
void SymbolicProtocol::run_loss(Forward& f, std::size_t output, std::vector<Block>& held) {
  const Shape input{std::span(case_->input)};
  const Shape& shape = geometry_->shape_of(geometry_->live.back()[output], input);
  const bool squares = output > 0 || case_->protocol.loss == LossKind::mse;
  const std::int64_t elements = shape.elements();
  const Block target = held.emplace_back(squares ? heap_.allocate(elements * item_, false)
                                                 : heap_.allocate(shape[0] * kIndexBytes, false));
  SymbolicValue x = graph_.output(output);
  if (shape.rank() != 2) x = graph_.reshape(x);
  if (x.half) x = graph_.cast(x, elements, false, true);
  const Block block = held.emplace_back(heap_.allocate(item_));
  const Block kept = squares ? x.block : heap_.allocate(elements * item_);
  SymbolicValue loss = graph_.loss(x, elements, kept, target);
  loss.block = block;
  if (loss.requires_grad) f.losses.push_back(std::move(loss));
}

void SymbolicProtocol::run_backward(int microbatch) {
  microbatch_ = microbatch;
  Forward& f = forward(microbatch);
  const ProtocolSpec& p = case_->protocol;
  const int calls = backward_calls(*case_, *geometry_);
  const int parts = calls / p.backwards;
  const int roots = static_cast<int>(f.losses.size());
  for (int i = 0; i < calls * roots; ++i) {
    if (p.autocast == AutocastSpan::both) graph_.enter_autocast();
    if (p.partial) want(i % parts, f.inputs);
    const int root = i / parts % roots;
    const SymbolicEdge from = f.losses[static_cast<std::size_t>(root)].gradient();
    graph_.backward(f.graph, {from, root, i + 1 < calls * roots, wanted_}, f.executions,
                    is_first(microbatch));
    graph_.leave_autocast();
    emit(Event::backward);
  }
  f.losses.clear();
  // The graph goes with the loss, the gradients of inputs stay.
  f.graph.leaves = graph_.mark().leaves;
  graph_.release(f.graph);
  emit(Event::graph);
  if (is_first(microbatch)) trace_->executions = f.executions;
}

/// The tensors that part `part` of a backward is for.
void SymbolicProtocol::want(int part, const std::vector<SymbolicValue>& inputs) {
  wanted_.assign(static_cast<std::size_t>(inputs.back().edge.leaf) + 1, false);
  int next = 0;
  for (std::size_t p = 0; p < geometry_->parameters.size(); ++p) {
    if (!geometry_->parameters[p].frozen) wanted_[p] = next++ % 2 == part;
  }
  for (const SymbolicValue& input : inputs) {
    if (!input.requires_grad) continue;
    wanted_[static_cast<std::size_t>(input.edge.leaf)] = next++ % 2 == part;
  }
}

void SymbolicProtocol::note_gradients() {
  const auto formula_of = [&](int leaf) {
    const SymbolicGradient& g = graph_.gradient_of(leaf);
    return g ? g.formula : 0;
  };
  for (int p = 0; p < static_cast<int>(state_.size()); ++p) {
    trace_->parameter_gradients.push_back(formula_of(p));
  }
  for (const Forward& f : forwards_) {
    for (const SymbolicValue& input : f.inputs) {
      trace_->input_gradients.push_back(formula_of(input.edge.leaf));
    }
  }
}

void SymbolicProtocol::step_optimizer() {
  const ProtocolSpec& p = case_->protocol;
  if (p.clip != 0) {
    // The norm of each, in turn.
    for (std::size_t i = 0; i < state_.size(); ++i) {
      if (graph_.gradient_of(static_cast<int>(i))) heap_.allocate(item_);
    }
  }
  const int tensors = p.optimizer == OptimizerKind::adam ? 2 : p.momentum != 0 ? 1 : 0;
  for (std::size_t i = 0; i < state_.size(); ++i) {
    if (tensors == 0 || state_[i] || !graph_.gradient_of(static_cast<int>(i))) continue;
    state_[i] = heap_.allocate(tensors * geometry_->parameters[i].shape.elements() * item_, false);
  }
}

void SymbolicProtocol::on_event(Event event, int layer, int execution, std::int64_t entered,
                                bool stops) {
  LiveReading reading{event,        step_,        event == Event::step ? 0 : microbatch_,
                      layer,        execution,    entered,
                      heap_.live(), heap_.peak(), host_.live()};
  reading.stops = stops;
  trace_->live.push_back(reading);
  heap_.reset_peak();
}

}  // namespace rematch
