#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kErrors = "errors";

std::string text_of(const RecordedError& error) { return error.kind + ": " + error.message; }

std::optional<Violation> check_errors(const Evidence& e) {
  if (e.crash) return std::nullopt;
  if (e.plain.error) return Violation{kErrors, "plain run", "no error", text_of(*e.plain.error)};
  if (!e.checkpointed.error) return std::nullopt;
  const bool foreseen = e.forecast.may_fail && e.checkpointed.error->kind == "checkpoint_error";
  if (foreseen) return std::nullopt;
  return Violation{kErrors, "checkpointed run",
                   e.forecast.may_fail ? "checkpoint_error" : "no error",
                   text_of(*e.checkpointed.error)};
}

}  // namespace

extern const Law errors_law;
const Law errors_law{
    .name = kErrors,
    .statement =
        "The checkpointed run raises no error that the plain run does not raise, except that a "
        "determinism check on values may notice a recomputation without random state.",
    .harm = "Training stops with an error that does not occur without checkpointing.",
    .topic = Topic::errors,
    .check = check_errors,
    .reads = {},
    .judges_failures = true};

}  // namespace rematch
