#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kPromises = "promises";

std::optional<Violation> check_promises(const Evidence& e) {
  for (const PromiseReading& p : e.checkpointed.promises) {
    if (!p.broken.empty()) return Violation{kPromises, "promise " + p.name, "kept", p.broken};
  }
  return std::nullopt;
}

}  // namespace

extern const Law promises_law;
const Law promises_law{
    .name = kPromises,
    .statement =
        "What the documentation promises beside equal numbers holds, where a case tries it.",
    .harm = "Code that relies on the documentation fails, or computes something else.",
    .topic = Topic::own,
    .check = check_promises,
    .reads = {Observable::promises},
    .applies = [](const Evidence& e) { return !e.checkpointed.promises.empty(); }};

}  // namespace rematch
