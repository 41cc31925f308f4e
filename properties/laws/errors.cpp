#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kName = "errors";

std::string text_of(const RecordedError& error) { return error.kind + ": " + error.message; }

std::optional<Breach> check(const Evidence& e) {
  if (e.plain.error) return Breach{kName, "plain run", "no error", text_of(*e.plain.error)};
  if (!e.checkpointed.error) return std::nullopt;
  const bool foreseen = e.forecast.may_fail && e.checkpointed.error->kind == "checkpoint_error";
  if (foreseen) return std::nullopt;
  return Breach{kName, "checkpointed run", e.forecast.may_fail ? "checkpoint_error" : "no error",
                text_of(*e.checkpointed.error)};
}

}  // namespace

extern const Law errors_law;
const Law errors_law{
    kName,
    "Neither run fails, except that a check on values may notice a replay without random state.",
    check};

}  // namespace rematch
