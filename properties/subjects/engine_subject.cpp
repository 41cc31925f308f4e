#include "properties/subjects/engine_subject.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>

#include "engine/ambient/ambient_scope.h"
#include "engine/autograd/autocast.h"
#include "engine/autograd/backward.h"
#include "engine/autograd/offload.h"
#include "engine/backend/device.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/cuda/device.h"
#include "engine/memory/ledger.h"
#include "engine/nn/gradients.h"
#include "engine/nn/optimizer.h"
#include "engine/ops/loss.h"
#include "engine/ops/view.h"
#include "properties/forecast/engine_facts.h"
#include "properties/record/direction.h"
#include "properties/subjects/engine_data.h"
#include "properties/subjects/engine_model.h"
#include "properties/subjects/engine_note.h"
#include "properties/subjects/layer_agreement.h"
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
      const Tensor y = model_.evaluate(next_input());
      note(Quantity::reevaluation, protocol_.steps - 1, 0, 0, y);
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
    } catch (const cuda::DeviceLost&) {
      throw;
    } catch (const std::exception& e) {
      reading.failed = true;
      reading.message = e.what();
    }
    model_.inject({});
    set_prior_gradients();
    reading.left_bytes = ambient().ledger->live() + offloaded() - before;
    reading.left_behind = left_behind();
    // What it showed on the way is of no concern; its error is.
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
    if (failure.kind == FailureKind::input_changed) written.emplace(forward.input);
    if (failure.kind == FailureKind::weight_changed)
      written.emplace(model_.weight_of(failure.layer));
    run_backward(forward);
  }

  struct Forward {
    ForwardRun run;
    Tensor input;
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
      note(Quantity::parameter_gradient, step, 0, static_cast<int>(i),
           model_.parameters()[i].grad());
    }
  }

  void run_forward(Forward& forward, int step, int microbatch) {
    forward.run.step = step;
    forward.run.microbatch = microbatch;
    forward.run.watched = watched_;
    const bool displaced = protocol_.input_requires_grad;
    forward.input = next_input({.seed = case_.seed,
                                .array = direction_of_input(microbatch),
                                .distance = displaced ? displacement_ : 0});
    forward.input.set_requires_grad(protocol_.input_requires_grad);
    model_.enter_phase(Moment::after_forward);
    std::optional<AutocastScope> autocast;
    if (protocol_.autocast != AutocastSpan::off) autocast.emplace(true, protocol_.cast_cache);
    Tensors outputs = run_model(forward);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      note(Quantity::output, step, microbatch, static_cast<int>(i), outputs[i]);
    }
    Tensors targets;
    Tensors losses;
    for (std::size_t i = 0; i < (protocol_.auxiliary_losses ? outputs.size() : 1); ++i) {
      losses.push_back(loss_of(flatten(outputs[i]), i, targets));
    }
    autocast.reset();
    for (std::size_t i = 0; i < losses.size(); ++i) {
      note(Quantity::loss, step, microbatch, static_cast<int>(i), losses[i]);
      if (losses[i].requires_grad()) forward.losses.push_back(losses[i]);
    }
    for (Tensor& loss : forward.losses) {
      if (scaler_) loss = scaler_->scaled(loss);
      // What is still saved when the last node has run, before anything is swept up: registered
      // by the first node, so that it comes before every other end-of-backward action.
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
    if (!offload_) return model_.forward(forward.input, forward.run);
    const OffloadScope scope(*offload_);
    return model_.forward(forward.input, forward.run);
  }

  std::int64_t offloaded() const { return offload_ ? offload_->ledger().live() : 0; }

  void run_backward(Forward& forward) {
    model_.enter_phase(Moment::after_backward);
    std::fill(fired_.begin(), fired_.end(), 0);
    if (watched_) model_.enter_backward(forward.run);
    const std::vector<Tensors> parts = parts_of_backward(forward.input);
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
    note(Quantity::input_gradient, step, microbatch, 0, forward.input.grad());
    for (std::size_t i = 0; i < fired_.size(); ++i) {
      record_.hooks.push_back({step, microbatch, static_cast<int>(i), fired_[i]});
    }
    for (std::size_t i = 0; i < forward.run.executions.size(); ++i) {
      record_.executions.push_back({step, microbatch, static_cast<int>(i),
                                    forward.run.executions[i], forward.run.computations[i]});
    }
  }

  /// What each backward is asked for; none: everything.
  std::vector<Tensors> parts_of_backward(const Tensor& input) {
    if (!protocol_.partial) return {{}};
    std::vector<Tensors> parts(2);
    std::size_t next = 0;
    for (const Tensor& t : model_.parameters()) {
      if (t.requires_grad()) parts[next++ % 2].push_back(t);
    }
    if (input.requires_grad()) parts[next % 2].push_back(input);
    if (parts[1].empty()) parts.pop_back();
    return parts;
  }

  void note_state(int step) {
    for (std::size_t i = 0; i < model_.parameters().size(); ++i) {
      note(Quantity::parameter, step, 0, static_cast<int>(i), model_.parameters()[i]);
    }
    for (std::size_t i = 0; i < model_.buffers().size(); ++i) {
      note(Quantity::buffer, step, 0, static_cast<int>(i), model_.buffers()[i]);
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

  void note(Quantity quantity, int step, int microbatch, int index, const Tensor& t) {
    rematch::note({quantity, step, microbatch, index}, t, record_);
  }

  const Case& case_;
  /// Of the same numbers, perhaps in another dtype.
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

/// Of so many cases one has its freed memory poisoned at once, on a device too.
constexpr std::uint64_t kCasesPerPoison = 32;

std::shared_ptr<Ledger> new_ledger(Device device) {
  auto ledger = std::make_shared<Ledger>(memory_of(device));
  // A read after free must not pass.
  ledger->set_poison(true);
  ledger->set_limit(kMaxRunBytes);
  return ledger;
}

}  // namespace

EngineSubject::EngineSubject(EngineParts parts, Device device)
    : parts_(std::move(parts)), ledger_(new_ledger(device)) {}

EngineSubject::EngineSubject(EngineParts (*make_parts)(), Device device)
    : EngineSubject(EngineParts(), device) {
  make_parts_ = make_parts;
}

EngineSubject::EngineSubject(CheckpointFunction checkpoint)
    : EngineSubject(EngineParts{nullptr, std::move(checkpoint)}) {}

EngineSubject::~EngineSubject() = default;

Versions EngineSubject::versions() const {
  if (!on_device()) return {};
  return {{"device", device_description(device())}};
}

Observables EngineSubject::observes() const {
  Observables all = Observables::all().without({Observable::saved_tensors});
  if (!on_device()) all.erase(Observable::host_agreement);
  return all;
}

bool EngineSubject::facts(const Case& c, const Geometry& geometry, const Record& /*plain*/,
                          Facts& facts) const {
  engine_facts(c, geometry, !on_device(), facts);
  return true;
}

DeviceWork work_of(const cuda::Operations& o) {
  return {{"kernels", o.kernels},     {"products", o.products},
          {"fills", o.fills},         {"uploads", o.uploads},
          {"downloads", o.downloads}, {"copies", o.copies},
          {"waits", o.waits},         {"slow_convolutions", o.slow_convolutions}};
}

DeviceWork EngineSubject::device_work() const {
  return on_device() ? work_of(asked_) : DeviceWork{};
}

void EngineSubject::run(const Case& c, const Geometry& geometry, const RunRequest& request,
                        Record& record) {
  // The thread's count is that of all its subjects.
  const cuda::Operations before = on_device() ? cuda::operations() : cuda::Operations{};
  run_here(c, geometry, request, record);
  if (on_device()) asked_ += cuda::operations() - before;
}

void EngineSubject::run_here(const Case& c, const Geometry& geometry, const RunRequest& request,
                             Record& record) {
  record.clear();
  // An earlier run may have leaked: count from what is live now.
  if (ledger_->live() != 0) ledger_ = new_ledger(device());
  // Of a run that broke off: their readers are gone.
  ledger_->memory().drop_reads();
  // Late poison misses what reads a block between its release and the poisoning. So some cases, and
  // all that a person will look at, run with all of it at once.
  ledger_->memory().set_late_poison(!request.poison_at_once && c.seed % kCasesPerPoison != 0);
  if (request.compare_layers) {
    if (!host_ledger_) host_ledger_ = std::make_shared<Ledger>();
    record.agreements = compare_layers(c, geometry, host_ledger_, ledger_);
    return;
  }
  if (make_parts_ != nullptr) parts_ = make_parts_();
  if (offload_ledger_ && offload_ledger_->live() != 0) offload_ledger_.reset();
  ledger_->reset_peak();
  ledger_->clear_timeline();
  ledger_->record_timeline(request.timeline);
  const AmbientScope scope(ledger_, c.seed);
  const auto fail = [&](const char* kind, const std::exception& e) {
    record.error = RecordedError{kind, e.what()};
  };
  try {
    const bool offload = c.plan.offload && request.checkpointed;
    if (offload && !offload_ledger_) {
      // Kept from run to run, because pinned memory is expensive to allocate.
      offload_ledger_ = std::make_shared<Ledger>(offload_memory_of(device()));
      offload_ledger_->set_poison(true);
    }
    Run run(c, geometry, request, parts_, offload ? offload_ledger_ : nullptr, record);
    try {
      request.displacement != 0 ? run.go_forward() : run.go();
    } catch (...) {
      // What was seen before counts as well.
      ledger_->memory().finish_reads();
      throw;
    }
    ledger_->memory().finish_reads();
  } catch (const cuda::DeviceLost&) {
    // No error of this run: another thread's work may have caused it.
    throw;
  } catch (const CheckpointError& e) {
    fail("checkpoint_error", e);
  } catch (const OutOfMemory& e) {
    fail("out_of_memory", e);
  } catch (const std::invalid_argument& e) {
    fail("invalid_argument", e);
  } catch (const std::exception& e) {
    fail("error", e);
  }
  record.peak_bytes = std::max(record.peak_bytes, ledger_->peak());
  record.reserved_bytes = ledger_->reserved();
  const std::int64_t left = ledger_->live() + (offload_ledger_ ? offload_ledger_->live() : 0);
  if (left != 0 && !record.error) {
    record.error = RecordedError{
        "leak", std::to_string(left) + " bytes are still live after the run was torn down"};
  }
  for (const LedgerEvent& event : ledger_->timeline()) {
    record.timeline.push_back(EngineModel::point_of(event));
  }
}

}  // namespace rematch
