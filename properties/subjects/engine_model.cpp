#include "properties/subjects/engine_model.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include "engine/autograd/node.h"
#include "engine/kernels/random.h"
#include "engine/ops/view.h"
#include "engine/tensor/dispatch.h"
#include "engine/tensor/host_fill.h"
#include "properties/record/case_data.h"
#include "properties/record/direction.h"
#include "properties/subjects/trial.h"

namespace rematch {

/// A layer bound to one forward.
struct EngineModel::LayerCall {
  EngineModel* model;
  ForwardRun* forward;
  int layer;
  Tensors operator()(const Tensors& live) const { return model->run_layer(layer, *forward, live); }
};

struct EngineModel::SegmentCall {
  EngineModel* model;
  const SegmentSpec* segment;
  ForwardRun* forward;
  Tensors operator()(const Tensors& live) const {
    return model->run_range(segment->begin, segment->end, segment->nested, *forward, live);
  }
};

EngineModel::EngineModel(const Case& c, const Geometry& geometry, const RunRequest& request,
                         const Mechanics* mechanics, Record& record)
    : case_(c),
      geometry_(geometry),
      request_(request),
      mechanics_(mechanics),
      record_(record),
      detached_(c.layers.size(), false),
      train_(c.protocol.train) {
  for (const int layer : request.detached_layers) detached_[static_cast<std::size_t>(layer)] = true;
  // The ledger outlives runs: the last one left its own phase.
  enter_phase(Moment::after_forward);
  for (int i = 1; i < streams_of(c); ++i) ambient().streams.add("stream " + std::to_string(i));
  make_parameters();
}

void EngineModel::make_parameters() {
  Generator generator{case_.seed, kParameterStream, 0};
  parameters_.reserve(geometry_.parameters.size());
  for (const ParameterInfo& info : geometry_.parameters) {
    const Case& numbers = request_.numbers_of != nullptr ? *request_.numbers_of : case_;
    Tensor p = Tensor::empty(info.shape, numbers.dtype, Tag::parameters);
    fill_data(p, case_.data, info.low, info.high, generator,
              {.seed = case_.seed,
               .array = direction_of_parameter(static_cast<int>(parameters_.size())),
               .distance = info.frozen ? 0 : request_.displacement});
    p = converted(p, case_.dtype);
    p.set_requires_grad(!info.frozen);
    parameters_.push_back(std::move(p));
  }
  first_buffer_.assign(case_.layers.size(), -1);
  for (const ParameterInfo& info : geometry_.buffers) {
    int& first = first_buffer_[static_cast<std::size_t>(info.layer)];
    if (first < 0) first = static_cast<int>(buffers_.size());
    buffers_.push_back(Tensor::full(info.shape, case_.dtype, info.low, Tag::state));
  }
}

Tensor EngineModel::parameter_for(int layer, std::size_t position) const {
  const auto& used = geometry_.layer_parameters[static_cast<std::size_t>(layer)];
  if (position >= used.size()) return {};
  const Tensor& p = parameters_[static_cast<std::size_t>(used[position])];
  return detached_[static_cast<std::size_t>(layer)] ? p.detach() : p;
}

const LayerSpec& EngineModel::injected(int layer, bool forward) {
  const LayerSpec& spec = case_.layers[static_cast<std::size_t>(layer)];
  if (failure_.kind == FailureKind::none || failure_.layer != layer) return spec;
  const bool throws =
      failure_.kind == (forward ? FailureKind::forward_throws : FailureKind::recomputation_throws);
  if (throws) throw std::runtime_error("[trial] layer " + std::to_string(layer) + " fails");
  if (failure_.kind != FailureKind::op_exchanged || forward) return spec;
  exchanged_ = spec;
  exchanged_.kind = spec.kind == LayerKind::tanh ? LayerKind::sigmoid : LayerKind::tanh;
  return exchanged_;
}

Tensor EngineModel::apply_to_changed(int layer, const LayerSpec& spec, const Tensor& x) {
  if (failure_.kind == FailureKind::value_changed) {
    const WrittenTo changed(x, WrittenTo::What::last);
    return apply(layer, spec, {x})[0];
  }
  // No op that anybody sees.
  const auto reshaped = [](const Tensor& t, const Shape& shape) {
    OpWatcher* const watcher = std::exchange(ambient().ops, nullptr);
    Tensor y = reshape(t, shape);
    ambient().ops = watcher;
    return y;
  };
  const Shape& s = x.shape();
  const int last = s.rank() - 1;
  const Shape exchanged = s.with_extent(last, s[last - 1]).with_extent(last - 1, s[last]);
  return reshaped(apply(layer, spec, {reshaped(x, exchanged)})[0], s);
}

Tensors EngineModel::run_layer(int layer, ForwardRun& forward, const Tensors& live) {
  const auto index = static_cast<std::size_t>(layer);
  const std::vector<ValueRef>& before = geometry_.live[index];
  const std::vector<ValueRef>& after = geometry_.live[index + 1];
  // A checkpoint() under test may hand over anything.
  if (live.size() != before.size()) {
    throw std::invalid_argument("[model] layer " + std::to_string(layer) + " takes " +
                                std::to_string(before.size()) + " values, got " +
                                std::to_string(live.size()));
  }
  const auto find = [&](ValueRef value) -> const Tensor& {
    const auto at = std::find(before.begin(), before.end(), value);
    return live[static_cast<std::size_t>(at - before.begin())];
  };
  ForwardRun* outer_forward = std::exchange(current_forward_, &forward);
  const int outer_layer = std::exchange(current_layer_, layer);
  struct Restore {
    EngineModel& model;
    ForwardRun* forward;
    int layer;
    std::int64_t entered;
    int exceptions = std::uncaught_exceptions();
    /// Throws std::bad_alloc where there is no memory for the reading, unless another exception is
    /// under way, which says more.
    ~Restore() noexcept(false) {
      const ForwardRun& ran = *model.current_forward_;
      const int ended = std::exchange(model.current_layer_, layer);
      model.current_forward_ = forward;
      if (model.request_.timeline) model.enter_phase(model.phase_);
      if (!ran.watched) return;
      try {
        const int executions = ran.executions[static_cast<std::size_t>(ended)];
        model.note_event(Event::layer, ran, ended, executions - 1, entered);
      } catch (const std::bad_alloc&) {
        if (std::uncaught_exceptions() == exceptions) throw;
      }
    }
  } restore{*this, outer_forward, outer_layer, ambient().ledger->live()};
  const bool first = forward.executions[index]++ == 0;
  results_ = 0;
  saves_ = 0;
  if (request_.timeline) {
    ambient().ledger->set_label((forward.executions[index] - 1) << 20 |
                                static_cast<int>(phase_) << 16 | (layer + 1));
  }
  const LayerSpec& spec = injected(layer, first);
  // An identity hands on a value that another layer made.
  const std::shared_ptr<Node> before_it = forward.watched ? live[0].grad_fn() : nullptr;
  Tensors operands{live[0]};
  for (const ValueRef value : spec.from) operands.push_back(find(value));
  const Tensors outputs =
      first || failure_.layer != layer || failure_.kind < FailureKind::shape_changed
          ? apply(layer, spec, operands)
          : Tensors{apply_to_changed(layer, spec, operands[0])};
  for (int k = 0; first && k < static_cast<int>(outputs.size()); ++k) {
    const bool flag = outputs[static_cast<std::size_t>(k)].requires_grad();
    record_.grad_flags.push_back({forward.step, forward.microbatch, layer, k, flag});
  }
  if (forward.watched) {
    const std::shared_ptr<Node> maker = outputs[0].grad_fn();
    if (maker && maker != before_it) makers_.emplace_back(maker->sequence(), layer);
  }
  Tensors result;
  result.reserve(after.size());
  for (const ValueRef& value : after) {
    result.push_back(value.layer == layer ? outputs[static_cast<std::size_t>(value.output)]
                                          : find(value));
  }
  return result;
}

CheckpointOptions EngineModel::options_for(const CheckpointChoice& choice) const {
  CheckpointOptions options;
  options.reentrant = choice.variant == Variant::reentrant;
  options.preserve_rng = choice.preserve_rng;
  options.early_stop = choice.early_stop;
  options.determinism = choice.determinism == CheckKind::none       ? DeterminismCheck::none
                        : choice.determinism == CheckKind::metadata ? DeterminismCheck::metadata
                                                                    : DeterminismCheck::values;
  options.mechanics = mechanics_;
  if (!choice.keep.empty()) {
    options.policy = [keep = choice.keep](const OpInstance& instance) {
      const bool kept = std::any_of(keep.begin(), keep.end(), [&](const KeepSpec& k) {
        return k.op == instance.op && (k.index < 0 || k.index == instance.index);
      });
      return kept ? Keep::must_save : Keep::must_recompute;
    };
  }
  return options;
}

Tensors EngineModel::run_checkpoint(const Function& function, const Tensors& inputs,
                                    const CheckpointOptions& options) const {
  return checkpoint_ != nullptr ? (*checkpoint_)(function, inputs, options)
                                : checkpoint(function, inputs, options);
}

Tensors EngineModel::run_range(int begin, int end, const std::vector<SegmentSpec>& segments,
                               ForwardRun& forward, Tensors values) {
  int layer = begin;
  for (const SegmentSpec& s : segments) {
    for (; layer < s.begin; ++layer) values = run_layer(layer, forward, values);
    values = run_checkpoint(SegmentCall{this, &s, &forward}, values, options_for(s.choice));
    layer = s.end;
  }
  for (; layer < end; ++layer) values = run_layer(layer, forward, values);
  return values;
}

Tensors EngineModel::forward(const Tensors& inputs, ForwardRun& forward) {
  const int layers = static_cast<int>(case_.layers.size());
  forward.executions.assign(case_.layers.size(), 0);
  forward.computations.assign(case_.layers.size(), 0);
  static const std::vector<SegmentSpec> kPlain;
  if (!request_.checkpointed) return run_range(0, layers, kPlain, forward, inputs);
  const PlanSpec& plan = case_.plan;
  if (!plan.sequential) return run_range(0, layers, plan.segments, forward, inputs);
  return run_sequential(forward, inputs);
}

Tensors EngineModel::run_sequential(ForwardRun& forward, const Tensors& inputs) {
  const SequentialSpec& plan = *case_.plan.sequential;
  std::vector<Function> functions;
  functions.reserve(case_.layers.size());
  for (int i = 0; i < static_cast<int>(case_.layers.size()); ++i) {
    functions.emplace_back(LayerCall{this, &forward, i});
  }
  const LastSegment last = plan.last_stored ? LastSegment::stored : LastSegment::checkpointed;
  const CheckpointOptions options = options_for(plan.choice);
  if (checkpoint_ == nullptr) {
    return checkpoint_sequential(functions, plan.segments, inputs, last, options);
  }
  Tensors values = inputs;
  for (const Segment& s :
       mechanics_of(options).partition(static_cast<int>(functions.size()), plan.segments, last)) {
    const Function part = compose(std::span(functions).subspan(
        static_cast<std::size_t>(s.begin), static_cast<std::size_t>(s.end - s.begin)));
    if (s.checkpointed) {
      values = run_checkpoint(part, values, options);
      continue;
    }
    for (int i = s.begin; i < s.end; ++i) values = functions[static_cast<std::size_t>(i)](values);
  }
  return values;
}

Tensor EngineModel::evaluate(const Tensors& inputs) {
  GradMode no_grad(false);
  const bool train = std::exchange(train_, false);
  ForwardRun forward;
  forward.step = kNoStep;
  forward.executions.assign(case_.layers.size(), 1);
  forward.computations.assign(case_.layers.size(), 0);
  Tensors outputs = run_range(0, static_cast<int>(case_.layers.size()), {}, forward, inputs);
  train_ = train;
  return outputs[0];
}

Tensors EngineModel::run_alone(int layer, const Tensors& live) {
  ForwardRun forward;
  forward.executions.assign(case_.layers.size(), 0);
  forward.computations.assign(case_.layers.size(), 0);
  return run_layer(layer, forward, live);
}

void EngineModel::take_magnitudes() {
  for (Tensor& p : parameters_) {
    std::vector<double> values = p.to_vector();
    for (double& v : values) v = std::fabs(v);
    for_floating(p.dtype(), "magnitudes", [&]<class T>() {
      fill_on_host<T>(p, [&](std::span<T> out) {
        std::transform(values.begin(), values.end(), out.begin(),
                       [](double v) { return static_cast<T>(v); });
      });
    });
  }
}

}  // namespace rematch
