#include "properties/hunt/gather.h"

#include <exception>
#include <string>
#include <utility>

#include "properties/case/features.h"
#include "properties/forecast/engine_facts.h"
#include "properties/forecast/sums.h"
#include "properties/record/machine.h"
#include "properties/subjects/engine_subject.h"

namespace rematch {
namespace {

class Gathering {
 public:
  Gathering(const Case& c, Subject& subject, Workspace& workspace, const GatherOptions& options)
      : c_(c),
        subject_(subject),
        declared_(subject.declares()),
        workspace_(workspace),
        options_(options) {}

  /// Repeats both runs of a case that violated a law.
  void repeat(Evidence& e) {
    RunRequest request;
    request.detached_layers = frozen_layers(c_, workspace_.geometry);
    if (!repeat_once("repeated plain run", request, workspace_.plain_repeat, e)) return;
    e.plain_repeat = &workspace_.plain_repeat;
    if (e.repeat != nullptr) return;
    request.detached_layers.clear();
    request.checkpointed = true;
    if (!repeat_once("repeated run", request, workspace_.repeat, e)) return;
    e.repeat = &workspace_.repeat;
  }

  Evidence run() {
    Workspace& w = workspace_;
    w.geometry = validate(c_);
    check_options(c_.options, declared_.scope.options);
    Evidence e{c_, w.geometry, w.forecast, declared_.observes, w.plain, w.checkpointed};
    e.rounds_differently = declared_.rounds_differently;
    if (declared_.whole_segments) {
      engine_facts(c_, w.geometry, true, w.facts);
      e.sums_differently = sums_across_segments(c_, w.geometry, w.facts);
    }
    // A crash must not leave an earlier case's record for this one's.
    w.plain.clear();
    w.checkpointed.clear();
    RunRequest request;
    request.timeline = options_.timelines;
    request.layer_values = e.observed.contains(Observable::saved_tensors);
    request.detached_layers = frozen_layers(c_, w.geometry);
    const bool ran = run_once("plain run", request, w.plain, e);
    if (w.plain.error && w.plain.error->kind == "out_of_memory") {
      throw NotJudged("the case is too large to be run: " + w.plain.error->message);
    }
    if (!subject_.facts(c_, w.geometry, w.plain, w.facts)) {
      engine_facts(c_, w.geometry, true, w.facts);
    }
    forecast(c_, w.geometry, w.facts, w.forecast);
    if (!ran) return e;
    request.layer_values = false;
    request.detached_layers.clear();
    request.checkpointed = true;
    if (!run_once("checkpointed run", request, w.checkpointed, e) || e.failed()) return e;
    gather_extra_runs(e);
    return e;
  }

 private:
  /// false: the subject crashed.
  bool run_once(std::string_view name, RunRequest request, Record& record, Evidence& e) {
    if (options_.on_run) options_.on_run(name);
    request.poison_at_once = options_.poison_at_once;
    try {
      subject_.run(c_, workspace_.geometry, request, record);
      return true;
    } catch (const NotJudged&) {
      throw;
    } catch (const SubjectBroken&) {
      throw;
    } catch (const std::exception& error) {
      if (is_of_machine(error)) throw;
      e.crash = std::string(name) + ": exception: " + error.what();
      return false;
    }
  }

  /// A run that ended well once and cannot be judged the next time differs from itself.
  bool repeat_once(std::string_view name, const RunRequest& request, Record& record, Evidence& e) {
    try {
      return run_once(name, request, record, e);
    } catch (const NotJudged& error) {
      record.clear();
      record.error = RecordedError{"not_judged", error.what()};
      return true;
    }
  }

  /// Whether a law that was asked for reads it, and the subject can give it.
  bool wanted(ExtraRun extra, const Evidence& e) const {
    for (std::size_t i = 0; i < laws().size(); ++i) {
      const Law& law = laws()[i];
      if (options_.laws[i] && law.extra_runs.contains(extra) &&
          e.observed.contains_all(law.reads)) {
        return true;
      }
    }
    return false;
  }

  void gather_extra_runs(Evidence& e) {
    const bool from_fresh = subject_.wants_fresh_repeat();
    if ((declared_.may_vary || from_fresh || is_set(c_.options, kRepeat, "yes")) &&
        wanted(ExtraRun::repeat, e)) {
      RunRequest request;
      request.checkpointed = true;
      request.fresh = from_fresh;
      if (!run_once("repeated run", request, workspace_.repeat, e)) return;
      e.repeat = &workspace_.repeat;
    }
    if (e.rounds_differently || e.sums_differently ||
        (declared_.foreign && wanted(ExtraRun::reference, e))) {
      std::shared_ptr<Subject>& engine = workspace_.engine;
      if (!engine) engine = std::make_shared<EngineSubject>();
      const auto frozen = frozen_layers(c_, workspace_.geometry);
      if (run_reference(c_, workspace_.geometry, frozen, *engine, workspace_.reference)) {
        e.reference = &workspace_.reference;
      }
    }
    if (wanted(ExtraRun::layers, e)) {
      RunRequest request;
      request.compare_layers = true;
      if (!run_once("layers by themselves", request, workspace_.layers, e)) return;
      e.layers = &workspace_.layers;
    }
    if (wanted(ExtraRun::slope, e) && has_slope(c_, workspace_.forecast)) measure_slope(e);
  }

  void measure_slope(Evidence& e) {
    SlopeSamples& samples = workspace_.slope;
    samples.by_gradients = slope_by_gradients(c_, workspace_.plain);
    samples.middle = first_step_loss(c_, workspace_.plain);
    samples.magnitude = magnitude_of(c_, workspace_.plain);
    samples.around.clear();
    for (const double distance : kDistances) {
      SlopeSample sample{distance, 0, 0, 0, 0};
      const bool complete = displaced_loss(distance, sample.forward, e) &&
                            displaced_loss(-distance, sample.backward, e) &&
                            displaced_loss(distance / 2, sample.half_forward, e) &&
                            displaced_loss(-distance / 2, sample.half_backward, e);
      if (!complete) break;
      samples.around.push_back(sample);
      if (agrees(samples, sample)) break;
    }
    e.slope = &samples;
  }

  bool displaced_loss(double displacement, double& loss, Evidence& e) {
    RunRequest request;
    request.displacement = displacement;
    Record& record = workspace_.displaced;
    if (!run_once("displaced run", request, record, e) || record.error) return false;
    loss = first_step_loss(c_, record);
    return true;
  }

  const Case& c_;
  Subject& subject_;
  const Declaration& declared_;
  Workspace& workspace_;
  const GatherOptions& options_;
};

}  // namespace

Evidence gather(const Case& c, Subject& subject, Workspace& workspace,
                const GatherOptions& options) {
  return Gathering(c, subject, workspace, options).run();
}

Verdicts judge_case(const Case& c, Subject& subject, Workspace& workspace,
                    const GatherOptions& options) {
  Gathering gathering(c, subject, workspace, options);
  Evidence evidence = gathering.run();
  Verdicts verdicts = judge(evidence, options.laws);
  if (verdicts.kept() || evidence.crash || !subject.declares().foreign) return verdicts;
  if (options.worth_repeating && !options.worth_repeating(verdicts)) return verdicts;
  gathering.repeat(evidence);
  return judge(evidence, options.laws);
}

Verdicts judge_case(const Case& c, Subject& subject, Workspace& workspace, const LawSet& laws) {
  GatherOptions options;
  options.laws = laws;
  options.poison_at_once = true;
  return judge_case(c, subject, workspace, options);
}

}  // namespace rematch
