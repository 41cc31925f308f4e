#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kHooks = "hooks";

std::optional<Violation> check_hooks(const Evidence& e) {
  Finder counts(e.checkpointed.hooks);
  return for_each_forward(e.c.protocol, [&](int step, int microbatch) -> std::optional<Violation> {
    for (int p = 0; p < static_cast<int>(e.geometry.parameters.size()); ++p) {
      const HookCount* entry = counts.find([&](const HookCount& h) {
        return h.step == step && h.microbatch == microbatch && h.parameter == p;
      });
      const int expected = e.forecast.hooks[static_cast<std::size_t>(p)];
      // A hook that never fired need not be mentioned.
      const int got = entry != nullptr ? entry->count : 0;
      if (got == expected) continue;
      return Violation{kHooks,
                       place_of(step, microbatch) + ", " + parameter_name(e.c, e.geometry, p),
                       std::to_string(expected),
                       entry != nullptr ? std::to_string(got) : std::string(kNotRecorded)};
    }
    return std::nullopt;
  });
}

}  // namespace

extern const Law hooks_law;
const Law hooks_law{
    .name = kHooks,
    .statement =
        "A parameter's gradient hook fires once per backward, and once more for "
        "every reentrant region that accumulates into it separately.",
    .harm =
        "Gradient hooks (clipping, reduction between devices, logging) act twice or not at all.",
    .topic = Topic::gradient_flow,
    .check = check_hooks,
    .reads = {Observable::hooks},
    .applies = [](const Evidence& e) { return !e.geometry.parameters.empty(); }};

}  // namespace rematch
