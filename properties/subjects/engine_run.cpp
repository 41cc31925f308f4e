#include "properties/subjects/engine_run.h"

#include <algorithm>
#include <deque>
#include <optional>

#include "engine/autograd/autocast.h"
#include "engine/autograd/backward.h"
#include "engine/autograd/offload.h"
#include "engine/nn/gradients.h"
#include "engine/nn/optimizer.h"
#include "engine/ops/loss.h"
#include "engine/ops/view.h"
#include "properties/record/case_data.h"
#include "properties/record/direction.h"
#include "properties/record/machine.h"
#include "properties/subjects/engine_model.h"
#include "properties/subjects/observe.h"
#include "properties/subjects/trial.h"

namespace rematch {
namespace {

std::unique_ptr<nn::Optimizer> make_optimizer(const ProtocolSpec& p, const Tensors& parameters) {
  if (p.optimizer == OptimizerKind::adam) {
    return std::make_unique<nn::Adam>(parameters, p.learning_rate);
  }
  return std::make_unique<nn::Sgd>(parameters, p.learning_rate, p.momentum);
}

/// One run of a case: the protocol, step by step, with everything observable written down.
class Run {
 public:
  Run(const Case& c, const Geometry& geometry, const RunRequest& request, const EngineParts& parts,
      const std::shared_ptr<Ledger>& host, Record& record)
      : case_(c),
        numbers_(request.numbers_of != nullptr ? *request.numbers_of : c),
        protocol_(c.protocol),
        displacement_(request.displacement),
        watched_(request.displacement == 0),
        record_(record),
        model_(c, geometry, request, parts.mechanics.get(), record),
        inputs_{c.seed, kInputStream, 0},
        targets_{c.seed, kTargetStream, 0},
        fired_(geometry.parameters.size(), 0) {
    if (parts.checkpoint) model_.use(parts.checkpoint);
    if (host) offload_.emplace(host);
    if (protocol_.loss_scale != 0) scaler_.emplace(protocol_.loss_scale);
    ambient().observer = &model_;
    for (std::size_t i = 0; i < model_.parameters().size(); ++i) {
      Tensor p = model_.parameters()[i];
      if (!p.requires_grad()) continue;
      p.register_hook([this, i](const Tensor&) {
        ++fired_[i];
        return Tensor();
      });
    }
    set_prior_gradients();
    if (host) model_.use_host(*host);
  }

  /// The losses of the first step and nothing else.
  void go_forward() {
    run_trial();
    const GradMode no_grad(false);
    for (int m = 0; m < protocol_.microbatches; ++m) {
      Forward forward;
      run_forward(forward, 0, m);
    }
  }

  void go() {
    run_trial();
    const auto optimizer = make_optimizer(protocol_, model_.parameters());
    for (int step = 0; step < protocol_.steps; ++step) {
      run_step(step);
      model_.enter_phase(Moment::after_step);
      if (finish_gradients()) optimizer->step();
      ForwardRun none;
      none.step = step;
      model_.note_event(Event::step, none);
      note_state(step);
      if (protocol_.zero_grad) optimizer->zero_grad();
    }
    if (protocol_.reevaluate) {
      Tensors inputs;
      for (int i = 0; i <= case_.further_inputs; ++i) inputs.push_back(next_input());
      const Tensor y = model_.evaluate(inputs);
      observe(Quantity::reevaluation, protocol_.steps - 1, 0, 0, y);
    }
  }

 private:
  Tensor next_input(const Displacement& by = {}) {
    return converted(make_input(numbers_, inputs_, by), case_.dtype);
  }

  /// Whether the step is to be made.
  bool finish_gradients() {
    const bool finite = !scaler_ || scaler_->unscale(model_.parameters());
    if (protocol_.clip != 0) nn::clip_gradients(model_.parameters(), protocol_.clip);
    return finite;
  }

  void set_prior_gradients() {
    for (Tensor p : model_.parameters()) {
      if (!p.requires_grad()) continue;
      const bool prior = protocol_.prior_gradients;
      p.set_grad(prior ? Tensor::ones(p.shape(), p.dtype(), Tag::gradients) : Tensor());
    }
  }

  void run_trial() {
    const InjectedFailure& failure = protocol_.failure;
    if (failure.kind == FailureKind::none) return;
    const std::int64_t before = ambient().ledger->live() + offloaded();
    TrialReading reading;
    try {
      inject(failure);
    } catch (const std::exception& e) {
      if (is_of_machine(e)) throw;
      reading.failed = true;
      reading.message = e.what();
    }
    model_.inject({});
    set_prior_gradients();
    reading.left_bytes = ambient().ledger->live() + offloaded() - before;
    reading.left_behind = left_behind();
    // Observations on the way do not matter; its error does.
    ambient().ledger->memory().drop_reads();
    record_.clear();
    record_.trial = std::move(reading);
    ambient().ledger->reset_peak();
  }

  void inject(const InjectedFailure& failure) {
    model_.inject(failure);
    Forward forward;
    run_forward(forward, 0, 0);
    if (failure.kind == FailureKind::graph_dropped) return;
    std::optional<WrittenTo> written;
    if (failure.kind == FailureKind::input_changed) written.emplace(forward.inputs[0]);
    if (failure.kind == FailureKind::weight_changed)
      written.emplace(model_.weight_of(failure.layer));
    run_backward(forward);
  }

  struct Forward {
    ForwardRun run;
    Tensors inputs;
    /// Those that require grad.
    Tensors losses;
  };

  void run_step(int step) {
    std::deque<Forward> forwards;
    model_.begin_step();
    for (int m = 0; m < protocol_.microbatches; ++m) {
      run_forward(forwards.emplace_back(), step, m);
      if (!protocol_.forwards_first) run_backward(forwards.back());
    }
    if (protocol_.forwards_first) {
      for (auto forward = forwards.rbegin(); forward != forwards.rend(); ++forward)
        run_backward(*forward);
    }
    for (std::size_t i = 0; i < model_.parameters().size(); ++i) {
      observe(Quantity::parameter_gradient, step, 0, static_cast<int>(i),
              model_.parameters()[i].grad());
    }
  }

  void run_forward(Forward& forward, int step, int microbatch) {
    forward.run.step = step;
    forward.run.microbatch = microbatch;
    forward.run.watched = watched_;
    for (int i = 0; i <= case_.further_inputs; ++i) {
      const bool trained = requires_grad(protocol_, i);
      forward.inputs.push_back(next_input({.seed = case_.seed,
                                           .array = direction_of_input(microbatch, i),
                                           .distance = trained ? displacement_ : 0}));
      forward.inputs.back().set_requires_grad(trained);
    }
    model_.enter_phase(Moment::after_forward);
    std::optional<AutocastScope> autocast;
    if (protocol_.autocast != AutocastSpan::off) autocast.emplace(true, protocol_.cast_cache);
    Tensors outputs = run_model(forward);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      observe(Quantity::output, step, microbatch, static_cast<int>(i), outputs[i]);
    }
    Tensors targets;
    Tensors losses;
    for (std::size_t i = 0; i < (protocol_.auxiliary_losses ? outputs.size() : 1); ++i) {
      losses.push_back(loss_of(flatten(outputs[i]), i, targets));
    }
    autocast.reset();
    for (std::size_t i = 0; i < losses.size(); ++i) {
      observe(Quantity::loss, step, microbatch, static_cast<int>(i), losses[i]);
      if (losses[i].requires_grad()) forward.losses.push_back(losses[i]);
    }
    for (Tensor& loss : forward.losses) {
      if (scaler_) loss = scaler_->scaled(loss);
      // Bytes that are still saved when the last node has run, before anything is swept up:
      // registered by the first node, so that it comes before every other end-of-backward action.
      loss.register_hook([this](const Tensor&) {
        at_end_of_backward([this] { left_saved_ = ambient().ledger->live(Tag::saved); });
        return Tensor();
      });
    }
    note_moment(Moment::after_forward, forward);
    if (forward.run.watched) model_.note_event(Event::forward, forward.run);
  }

  Tensor loss_of(const Tensor& output, std::size_t index, Tensors& targets) {
    if (index > 0) {
      targets.push_back(Tensor::zeros(output.shape(), case_.dtype, Tag::inputs));
      return mse_loss(output, targets.back());
    }
    targets.push_back(converted(make_target(numbers_, output.shape(), targets_), case_.dtype));
    return protocol_.loss == LossKind::mse ? mse_loss(output, targets.back())
                                           : cross_entropy(output, targets.back());
  }

  Tensors run_model(Forward& forward) {
    if (!offload_) return model_.forward(forward.inputs, forward.run);
    const OffloadScope scope(*offload_);
    return model_.forward(forward.inputs, forward.run);
  }

  std::int64_t offloaded() const { return offload_ ? offload_->ledger().live() : 0; }

  void run_backward(Forward& forward) {
    model_.enter_phase(Moment::after_backward);
    std::fill(fired_.begin(), fired_.end(), 0);
    if (watched_) model_.enter_backward(forward.run);
    const std::vector<Tensors> parts = parts_of_backward(forward.inputs);
    const std::size_t roots = forward.losses.size();
    const std::size_t calls = roots * parts.size() * static_cast<std::size_t>(protocol_.backwards);
    const bool whole = roots == 1 && !protocol_.partial;
    for (std::size_t i = 0; i < calls; ++i) {
      const bool retain = i + 1 < calls;
      std::optional<AutocastScope> autocast;
      if (protocol_.autocast == AutocastSpan::both) autocast.emplace(true, protocol_.cast_cache);
      backward(forward.losses[i / parts.size() % roots],
               {.retain_graph = retain, .inputs = parts[i % parts.size()]});
      autocast.reset();
      model_.note_event(Event::backward, forward.run);
      // A part does not use all that is recomputed for it, so it is read once that is gone.
      if (!whole) left_saved_ = ambient().ledger->live(Tag::saved);
      if (retain) {
        record_.bytes.push_back({Moment::after_backward, forward.run.step, forward.run.microbatch,
                                 left_saved_, 0, true, offloaded()});
      }
    }
    // Nor does the last one let go of what only others need.
    const std::int64_t left = whole ? left_saved_ : 0;
    forward.losses.clear();
    model_.leave_backward();
    model_.note_event(Event::graph, forward.run);
    const int step = forward.run.step;
    const int microbatch = forward.run.microbatch;
    note_moment(Moment::after_backward, forward);
    if (left != 0) record_.bytes.back().saved = left;
    for (std::size_t i = 0; i < forward.inputs.size(); ++i) {
      observe(Quantity::input_gradient, step, microbatch, static_cast<int>(i),
              forward.inputs[i].grad());
    }
    for (std::size_t i = 0; i < fired_.size(); ++i) {
      record_.hooks.push_back({step, microbatch, static_cast<int>(i), fired_[i]});
    }
    for (std::size_t i = 0; i < forward.run.executions.size(); ++i) {
      record_.executions.push_back({step, microbatch, static_cast<int>(i),
                                    forward.run.executions[i], forward.run.computations[i]});
    }
  }

  /// The tensors whose gradients each backward is asked for; none: all.
  std::vector<Tensors> parts_of_backward(const Tensors& inputs) {
    if (!protocol_.partial) return {{}};
    std::vector<Tensors> parts(2);
    std::size_t next = 0;
    for (const Tensors* tensors : {&model_.parameters(), &inputs}) {
      for (const Tensor& t : *tensors) {
        if (t.requires_grad()) parts[next++ % 2].push_back(t);
      }
    }
    if (parts[1].empty()) parts.pop_back();
    return parts;
  }

  void note_state(int step) {
    for (std::size_t i = 0; i < model_.parameters().size(); ++i) {
      observe(Quantity::parameter, step, 0, static_cast<int>(i), model_.parameters()[i]);
    }
    for (std::size_t i = 0; i < model_.buffers().size(); ++i) {
      observe(Quantity::buffer, step, 0, static_cast<int>(i), model_.buffers()[i]);
    }
    note_streams(Moment::after_step, step, 0);
  }

  void note_moment(Moment moment, const Forward& forward) {
    note_streams(moment, forward.run.step, forward.run.microbatch);
    const Ledger& ledger = *ambient().ledger;
    record_.bytes.push_back({moment, forward.run.step, forward.run.microbatch,
                             ledger.live(Tag::saved), ledger.live(Tag::temporaries), false,
                             offloaded()});
  }

  void note_streams(Moment moment, int step, int microbatch) {
    const auto& states = ambient().streams.states();
    for (std::size_t i = 0; i < states.size(); ++i) {
      record_.streams.push_back(
          {moment, step, microbatch, static_cast<int>(i), states[i].seed, states[i].offset});
    }
  }

  void observe(Quantity quantity, int step, int microbatch, int index, const Tensor& t) {
    rematch::observe({quantity, step, microbatch, index}, t, record_);
  }

  const Case& case_;
  /// A case of the same numbers, perhaps in another dtype.
  const Case& numbers_;
  const ProtocolSpec& protocol_;
  const double displacement_;
  /// Events are recorded.
  const bool watched_;
  Record& record_;
  EngineModel model_;
  Generator inputs_;
  Generator targets_;
  std::vector<int> fired_;
  std::int64_t left_saved_ = 0;
  std::optional<Offload> offload_;
  std::optional<nn::GradScaler> scaler_;
};

}  // namespace

void run_protocol(const Case& c, const Geometry& geometry, const RunRequest& request,
                  const EngineParts& parts, const std::shared_ptr<Ledger>& host, Record& record) {
  MemoryResource& memory = ambient().ledger->memory();
  Run run(c, geometry, request, parts, host, record);
  try {
    request.displacement != 0 ? run.go_forward() : run.go();
  } catch (...) {
    // Observations from before count as well.
    memory.finish_reads();
    throw;
  }
  memory.finish_reads();
}

}  // namespace rematch
