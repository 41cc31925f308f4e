#include <array>

#include "properties/laws/law.h"
#include "properties/laws/slope.h"

// Causes before consequences: the first law that is broken names a failure.
#define REMATCH_EACH_LAW(LAW) \
  LAW(errors)                 \
  LAW(requires_grad_map)      \
  LAW(outputs)                \
  LAW(losses)                 \
  LAW(dropout_masks)          \
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
  LAW(saved_bytes)            \
  LAW(bytes_after_backward)   \
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

Verdict judge(const Case& c, Subject& subject, Bench& bench, const Law* only) {
  const Geometry geometry = validate(c);
  const Forecast expected = forecast(c, geometry);
  RunRequest request;
  request.detached_layers = expected.frozen_layers;
  subject.run(c, geometry, request, bench.plain);
  request.detached_layers.clear();
  request.checkpointed = true;
  subject.run(c, geometry, request, bench.checkpointed);

  Evidence evidence{c, geometry, expected, bench.plain, bench.checkpointed};
  std::optional<SlopeSamples> slope;
  Verdict verdict;
  // A run that failed left a record that ends somewhere; only the law about errors can read it.
  const Law* errors = find_law("errors");
  const bool failed = bench.plain.error || bench.checkpointed.error;
  for (const Law& law : laws()) {
    const bool asked = only == nullptr || only->name == law.name || (failed && &law == errors);
    if (!asked || (failed && &law != errors)) continue;
    if (law.reads_slope) {
      if (!subject.displaces() || !has_slope(c, expected)) continue;
      slope = measure_slope(c, geometry, subject, bench.plain, bench.scratch);
      if (!slope) continue;
      evidence.slope = &*slope;
    }
    verdict.checked.set(static_cast<std::size_t>(&law - laws().data()));
    verdict.breach = law.check(evidence);
    if (verdict.breach) break;
  }
  return verdict;
}

}  // namespace rematch
