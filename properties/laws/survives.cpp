#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kName = "survives";

std::optional<Violation> check(const Evidence& e) {
  if (!e.crash) return std::nullopt;
  return Violation{kName, "the whole run", "a record of each run", *e.crash};
}

}  // namespace

extern const Law survives_law;
const Law survives_law{
    .name = kName,
    .statement = "The subject survives every run of a valid case, and returns a record.",
    .check = check,
    .reads = {},
    .judges_failures = true};

}  // namespace rematch
