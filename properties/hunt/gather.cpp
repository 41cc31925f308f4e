#include "properties/hunt/gather.h"

#include <exception>
#include <string>
#include <utility>

#include "properties/case/features.h"
#include "properties/forecast/engine_facts.h"

namespace rematch {
namespace {

class Gathering {
 public:
  Gathering(const Case& c, Subject& subject, Workspace& workspace, const GatherOptions& options)
      : c_(c), subject_(subject), workspace_(workspace), options_(options) {}

  Evidence run() {
    Workspace& w = workspace_;
    w.geometry = validate(c_);
    Evidence e{c_, w.geometry, w.forecast, subject_.observes(), w.plain, w.checkpointed};
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
    gather_extras(e);
    return e;
  }

 private:
  /// false: the subject crashed.
  bool run_once(std::string_view name, const RunRequest& request, Record& record, Evidence& e) {
    if (options_.on_run) options_.on_run(name);
    try {
      subject_.run(c_, workspace_.geometry, request, record);
      return true;
    } catch (const NotJudged&) {
      throw;
    } catch (const SubjectBroken&) {
      throw;
    } catch (const std::exception& error) {
      e.crash = std::string(name) + ": exception: " + error.what();
      return false;
    }
  }

  /// Whether a law that was asked for reads it, and the subject can give it.
  bool wanted(Extra extra, const Evidence& e) const {
    for (std::size_t i = 0; i < laws().size(); ++i) {
      const Law& law = laws()[i];
      if (options_.laws[i] && law.extras.contains(extra) && e.observed.contains_all(law.reads)) {
        return true;
      }
    }
    return false;
  }

  void gather_extras(Evidence& e) {
    const bool from_fresh = subject_.wants_fresh_repeat();
    if ((subject_.may_vary() || from_fresh) && wanted(Extra::repeat, e)) {
      RunRequest request;
      request.checkpointed = true;
      request.fresh = from_fresh;
      if (!run_once("repeated run", request, workspace_.repeat, e)) return;
      e.repeat = &workspace_.repeat;
    }
    if (wanted(Extra::layers, e)) {
      RunRequest request;
      request.compare_layers = true;
      if (!run_once("layers by themselves", request, workspace_.layers, e)) return;
      e.layers = &workspace_.layers;
    }
    if (wanted(Extra::slope, e) && has_slope(c_, workspace_.forecast)) measure_slope(e);
  }

  void measure_slope(Evidence& e) {
    SlopeSamples& samples = workspace_.slope;
    samples.promised = promised_slope(c_, workspace_.plain);
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
  Workspace& workspace_;
  const GatherOptions& options_;
};

}  // namespace

Evidence gather(const Case& c, Subject& subject, Workspace& workspace,
                const GatherOptions& options) {
  return Gathering(c, subject, workspace, options).run();
}

Verdicts judge(const Case& c, Subject& subject, Workspace& workspace, const LawSet& laws) {
  GatherOptions options;
  options.laws = laws;
  return judge(gather(c, subject, workspace, options), laws);
}

}  // namespace rematch
