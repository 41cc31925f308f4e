#include <algorithm>
#include <array>
#include <exception>
#include <stdexcept>
#include <tuple>

#include "properties/laws/law.h"
#include "properties/record/machine.h"

// Causes before consequences: the first law that is violated names a failure.
#define REMATCH_EACH_LAW(LAW) \
  LAW(survives)               \
  LAW(repeatable)             \
  LAW(errors)                 \
  LAW(injected_failures)      \
  LAW(requires_grad_map)      \
  LAW(collectives)            \
  LAW(dropout_masks)          \
  LAW(recomputed_values)      \
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
  LAW(recomputation_order)    \
  LAW(saved_bytes)            \
  LAW(saved_at_most)          \
  LAW(saved_within_plain)     \
  LAW(bytes_after_backward)   \
  LAW(held_at_most)           \
  LAW(held_in_backward)       \
  LAW(one_segment_alive)      \
  LAW(live_bytes)             \
  LAW(peak_bytes)             \
  LAW(plan_promise)           \
  LAW(plan_recomputations)    \
  LAW(cross_device)           \
  LAW(derivatives)            \
  LAW(agrees_with_reference)  \
  LAW(promises)

namespace rematch {

#define REMATCH_DECLARE(name) extern const Law name##_law;
REMATCH_EACH_LAW(REMATCH_DECLARE)
#undef REMATCH_DECLARE

namespace {

bool has(const Evidence& e, ExtraRun extra) {
  switch (extra) {
    case ExtraRun::repeat:
      return e.repeat != nullptr;
    case ExtraRun::layers:
      return e.layers != nullptr;
    case ExtraRun::slope:
      return e.slope != nullptr;
    case ExtraRun::reference:
      return e.reference != nullptr;
  }
  return false;
}

bool follows_gradients(const Law& law) {
  return !law.reads.contains(Observable::outputs) && !law.reads.contains(Observable::losses) &&
         !law.reads.contains(Observable::buffers);
}

Verdict judge_one(const Law& law, const Evidence& e, std::vector<Violation>& violations) {
  if (!e.observed.contains_all(law.reads)) return Verdict::not_observed;
  if (e.failed() && !law.judges_failures) return Verdict::not_applicable;
  const bool has_bits = !e.rounds_differently && !(e.sums_differently && follows_gradients(law));
  bool complete = !law.compares_values || has_bits || e.reference != nullptr;
  law.extra_runs.for_each([&](ExtraRun extra) { complete = complete && has(e, extra); });
  if (!complete) return Verdict::not_applicable;
  std::optional<Violation> violation;
  try {
    if (law.applies != nullptr && !law.applies(e)) return Verdict::not_applicable;
    violation = law.check(e);
  } catch (const std::exception& error) {
    if (is_of_machine(error)) throw;
    violation = Violation{law.name, "the record", "one that can be judged",
                          std::string("exception: ") + error.what()};
  }
  if (!violation) return Verdict::kept;
  violations.push_back(*std::move(violation));
  return Verdict::violated;
}

}  // namespace

std::span<const Law> laws() {
#define REMATCH_LIST(name) name##_law,
  static const std::array table{REMATCH_EACH_LAW(REMATCH_LIST)};
#undef REMATCH_LIST
  static_assert(std::tuple_size_v<decltype(table)> <= kMaxLaws);
  return table;
}

const Law* find_law(std::string_view name) {
  for (const Law& law : laws()) {
    if (law.name == name) return &law;
  }
  return nullptr;
}

std::size_t index_of(const Law& law) { return static_cast<std::size_t>(&law - laws().data()); }

LawSet all_laws() {
  LawSet all;
  for (std::size_t i = 0; i < laws().size(); ++i) all.set(i);
  return all;
}

LawSet laws_named(std::initializer_list<std::string_view> names) {
  LawSet named;
  for (const std::string_view name : names) {
    const Law* law = find_law(name);
    if (law == nullptr) throw std::invalid_argument("no law is named " + std::string(name));
    named.set(index_of(*law));
  }
  return named;
}

LawSet failure_laws() {
  LawSet failures;
  for (std::size_t i = 0; i < laws().size(); ++i) failures[i] = laws()[i].judges_failures;
  return failures;
}

std::string_view to_string(Topic topic) {
  constexpr std::array<std::string_view, kTopicCount> kNames{"numbers",
                                                             "masks and random state",
                                                             "state",
                                                             "absent gradients and hooks",
                                                             "recomputation",
                                                             "memory",
                                                             "errors and failures",
                                                             "survives",
                                                             "its own statements"};
  return kNames[static_cast<std::size_t>(topic)];
}

std::string_view to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::kept:
      return "kept";
    case Verdict::violated:
      return "violated";
    case Verdict::not_applicable:
      return "n/a";
    case Verdict::not_observed:
      return "not observed";
  }
  return "?";
}

std::size_t Verdicts::count(Verdict verdict) const {
  return static_cast<std::size_t>(std::count(
      by_law.begin(), by_law.begin() + static_cast<std::ptrdiff_t>(laws().size()), verdict));
}

Verdicts judge(const Evidence& evidence, const LawSet& asked) {
  Verdicts verdicts;
  verdicts.by_law.fill(Verdict::not_applicable);
  for (std::size_t i = 0; i < laws().size(); ++i) {
    if (asked[i]) verdicts.by_law[i] = judge_one(laws()[i], evidence, verdicts.violations);
  }
  return verdicts;
}

}  // namespace rematch
