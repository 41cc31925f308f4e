#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kSurvives = "survives";

std::optional<Violation> check_survives(const Evidence& e) {
  if (!e.crash) return std::nullopt;
  return Violation{kSurvives, "the whole run", "a record of each run", *e.crash};
}

}  // namespace

extern const Law survives_law;
const Law survives_law{
    .name = kSurvives,
    .statement = "The subject survives every run of a valid case, and returns a record.",
    .harm = "The training process crashes or hangs.",
    .topic = Topic::survival,
    .check = check_survives,
    .reads = {},
    .judges_failures = true};

}  // namespace rematch
