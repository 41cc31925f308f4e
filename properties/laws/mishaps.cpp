#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kName = "mishaps";

std::optional<Breach> check_run(const Evidence& e, const Record& record, const char* run,
                                bool must_fail) {
  const std::string place = "trial of the " + std::string(run) + ", mishap " +
                            std::string(to_string(e.c.protocol.mishap.kind));
  if (!record.trial) return Breach{kName, place, "a reading", std::string(kNotRecorded)};
  const TrialReading& trial = *record.trial;
  if (must_fail && !trial.failed) return Breach{kName, place, "an error", "none"};
  const bool harmless = e.c.protocol.mishap.kind == MishapKind::graph_dropped;
  if (harmless && trial.failed) return Breach{kName, place, "no error", trial.message};
  if (trial.left_bytes != 0) {
    return Breach{kName, place + ", bytes left behind", "0", std::to_string(trial.left_bytes)};
  }
  if (trial.left_behind.empty()) return std::nullopt;
  return Breach{kName, place + ", ambient state", "as before", "changed: " + trial.left_behind};
}

std::optional<Breach> check(const Evidence& e) {
  const MishapKind kind = e.c.protocol.mishap.kind;
  if (kind == MishapKind::none) return std::nullopt;
  if (auto b = check_run(e, e.checkpointed, "checkpointed run", e.forecast.trial_fails)) return b;
  return check_run(e, e.plain, "plain run", kind == MishapKind::forward_throws);
}

}  // namespace

extern const Law mishaps_law;
const Law mishaps_law{
    kName,
    "What changes between forward and backward is refused where a replay meets it; and what fails, "
    "or is dropped, leaves no byte and no setting behind.",
    check};

}  // namespace rematch
