#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kName = "errors";

std::string text_of(const RecordedError& error) { return error.kind + ": " + error.message; }

std::optional<Violation> check(const Evidence& e) {
  if (e.crash) return std::nullopt;
  if (e.plain.error) return Violation{kName, "plain run", "no error", text_of(*e.plain.error)};
  if (!e.checkpointed.error) return std::nullopt;
  const bool foreseen = e.forecast.may_fail && e.checkpointed.error->kind == "checkpoint_error";
  if (foreseen) return std::nullopt;
  return Violation{kName, "checkpointed run", e.forecast.may_fail ? "checkpoint_error" : "no error",
                   text_of(*e.checkpointed.error)};
}

}  // namespace

extern const Law errors_law;
const Law errors_law{.name = kName,
                     .statement =
                         "Neither run fails, except that a determinism check on values may notice "
                         "a recomputation without random state.",
                     .check = check,
                     .reads = {},
                     .judges_failures = true};

}  // namespace rematch
