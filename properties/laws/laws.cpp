#include <array>

#include "properties/laws/law.h"
#include "properties/laws/slope.h"
#include "properties/subjects/layer_agreement.h"

// Causes before consequences: the first law that is broken names a failure.
#define REMATCH_EACH_LAW(LAW) \
  LAW(errors)                 \
  LAW(mishaps)                \
  LAW(requires_grad_map)      \
  LAW(dropout_masks)          \
  LAW(replayed_values)        \
  LAW(outputs)                \
  LAW(losses)                 \
  LAW(rng_after_forward)      \
  LAW(absent_gradients)       \
  LAW(input_gradients)        \
  LAW(parameter_gradients)    \
  LAW(rng_after_backward)     \
  LAW(rng_after_step)         \
  LAW(buffers_after_step)     \
  LAW(parameters_after_step)  \
  LAW(reevaluation)           \
  LAW(executions)             \
  LAW(last_segment)           \
  LAW(hooks)                  \
  LAW(replay_order)           \
  LAW(saved_bytes)            \
  LAW(bytes_after_backward)   \
  LAW(one_segment_alive)      \
  LAW(live_bytes)             \
  LAW(peak_bytes)             \
  LAW(repeatable)             \
  LAW(cross_device)           \
  LAW(derivatives)

namespace rematch {

#define REMATCH_DECLARE(name) extern const Law name##_law;
REMATCH_EACH_LAW(REMATCH_DECLARE)
#undef REMATCH_DECLARE

std::span<const Law> laws() {
#define REMATCH_LIST(name) name##_law,
  static const std::array table{REMATCH_EACH_LAW(REMATCH_LIST)};
#undef REMATCH_LIST
  return table;
}

const Law* find_law(std::string_view name) {
  for (const Law& law : laws()) {
    if (law.name == name) return &law;
  }
  return nullptr;
}

namespace {

/// What single laws need beside the two records, gathered when they ask for it.
class More {
 public:
  More(Subject& subject, Bench& bench) : subject_(subject), bench_(bench) {}

  /// false: this case has none of it.
  bool gather(Needs needs, Evidence& e) {
    switch (needs) {
      case Needs::nothing:
        return true;
      case Needs::events:
        return subject_.observes_events();
      case Needs::slope:
        if (!subject_.displaces() || !has_slope(e.c, e.forecast)) return false;
        slope_ = measure_slope(e.c, e.geometry, subject_, bench_.plain, bench_.scratch);
        e.slope = slope_ ? &*slope_ : nullptr;
        return e.slope != nullptr;
      case Needs::repeat: {
        if (!subject_.on_device()) return false;
        RunRequest request;
        request.checkpointed = true;
        subject_.run(e.c, e.geometry, request, bench_.scratch);
        e.repeat = &bench_.scratch;
        return true;
      }
      case Needs::layers:
        if (!subject_.on_device()) return false;
        layers_ = subject_.compare_layers(e.c, e.geometry);
        e.layers = &layers_;
        return true;
    }
    return false;
  }

 private:
  Subject& subject_;
  Bench& bench_;
  std::optional<SlopeSamples> slope_;
  std::vector<LayerAgreement> layers_;
};

}  // namespace

void require_fitting(const Record& plain) {
  if (!plain.error || plain.error->kind != "out_of_memory") return;
  throw CaseTooLarge("the case is too large to be run: " + plain.error->message);
}

Verdict judge(const Case& c, Subject& subject, Bench& bench, const Law* only) {
  const Geometry geometry = validate(c);
  const Forecast expected = forecast(c, geometry, subject.on_device());
  RunRequest request;
  request.detached_layers = expected.frozen_layers;
  subject.run(c, geometry, request, bench.plain);
  require_fitting(bench.plain);
  request.detached_layers.clear();
  request.checkpointed = true;
  subject.run(c, geometry, request, bench.checkpointed);

  Evidence evidence{c, geometry, expected, bench.plain, bench.checkpointed};
  More more(subject, bench);
  Verdict verdict;
  // A run that failed left a record that ends somewhere; only the law about errors can read it.
  const Law* errors = find_law("errors");
  const bool failed = bench.plain.error || bench.checkpointed.error;
  for (const Law& law : laws()) {
    const bool asked = only == nullptr || only->name == law.name || (failed && &law == errors);
    if (!asked || (failed && &law != errors)) continue;
    if (!more.gather(law.needs, evidence)) continue;
    verdict.checked.set(static_cast<std::size_t>(&law - laws().data()));
    verdict.breach = law.check(evidence);
    if (verdict.breach) break;
  }
  return verdict;
}

}  // namespace rematch
