#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kInjectedFailures = "injected-failures";

std::optional<Violation> check_run(const Evidence& e, const Record& record, const char* run,
                                   bool must_fail) {
  const std::string place = "trial of the " + std::string(run) + ", failure " +
                            std::string(to_string(e.c.protocol.failure.kind));
  if (!record.trial)
    return Violation{kInjectedFailures, place, "a reading", std::string(kNotRecorded)};
  const TrialReading& trial = *record.trial;
  if (must_fail && !trial.failed) return Violation{kInjectedFailures, place, "an error", "none"};
  const bool harmless = e.c.protocol.failure.kind == FailureKind::graph_dropped;
  if (harmless && trial.failed)
    return Violation{kInjectedFailures, place, "no error", trial.message};
  if (trial.left_bytes != 0) {
    return Violation{kInjectedFailures, place + ", bytes left behind", "0",
                     std::to_string(trial.left_bytes)};
  }
  if (trial.left_behind.empty()) return std::nullopt;
  return Violation{kInjectedFailures, place + ", ambient state", "as before",
                   "changed: " + trial.left_behind};
}

std::optional<Violation> check_injected_failures(const Evidence& e) {
  const FailureKind kind = e.c.protocol.failure.kind;
  if (auto b = check_run(e, e.checkpointed, "checkpointed run", e.forecast.trial_fails)) return b;
  return check_run(e, e.plain, "plain run", kind == FailureKind::forward_throws);
}

}  // namespace

extern const Law injected_failures_law;
const Law injected_failures_law{
    .name = kInjectedFailures,
    .statement =
        "A recomputation raises an error if something changed between forward and backward. A "
        "forward or recomputation that fails, or a graph that is dropped, leaves no bytes and no "
        "settings behind.",
    .harm =
        "A change that invalidates the recomputation goes unnoticed and gradients are silently "
        "wrong, or memory and settings leak after an error.",
    .topic = Topic::errors,
    .check = check_injected_failures,
    .reads = {Observable::injected_failures},
    .applies = [](const Evidence& e) { return e.c.protocol.failure.kind != FailureKind::none; }};

}  // namespace rematch
