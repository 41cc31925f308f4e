#include <algorithm>
#include <vector>

#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kRequiresGradMap = "requires-grad-map";

std::string text_of(bool requires_grad) {
  return requires_grad ? "requires grad" : "requires no grad";
}

std::optional<Violation> compare(bool expected, std::optional<bool> got, std::string place) {
  if (got == expected) return std::nullopt;
  return Violation{kRequiresGradMap, std::move(place), text_of(expected),
                   got ? text_of(*got) : std::string(kNotRecorded)};
}

void leave_out(const std::vector<SegmentSpec>& segments, std::vector<bool>& judged) {
  for (const SegmentSpec& s : segments) {
    if (s.choice.variant != Variant::reentrant) {
      leave_out(s.nested, judged);
      continue;
    }
    std::fill(judged.begin() + s.begin, judged.begin() + s.end, false);
  }
}

/// Values that layers hand on within a reentrant segment, whose forward records nothing, are up to
/// the implementation: of views and identities, some say that they require grad. Nothing reads it.
/// The engine's own is known; it shows what layers run, as does all that is measured.
std::vector<bool> judged_layers(const Evidence& e) {
  std::vector<bool> judged(e.c.layers.size(), true);
  const bool is_engine = !e.forecast.measured && e.observed.contains(Observable::executions);
  if (!is_engine) leave_out(segments_of(e.c), judged);
  return judged;
}

std::optional<Violation> check_requires_grad_map(const Evidence& e) {
  const std::vector<bool> judged = judged_layers(e);
  Finder flags(e.checkpointed.grad_flags);
  Finder observations(e.checkpointed.observations);
  return for_each_forward(e.c.protocol, [&](int step, int microbatch) -> std::optional<Violation> {
    for (int layer = 0; layer < static_cast<int>(e.c.layers.size()); ++layer) {
      if (!judged[static_cast<std::size_t>(layer)]) continue;
      const auto& expected = e.forecast.grad_flags[static_cast<std::size_t>(layer)];
      for (int output = 0; output < static_cast<int>(expected.size()); ++output) {
        const GradFlag* flag = flags.find([&](const GradFlag& g) {
          return g.step == step && g.microbatch == microbatch && g.layer == layer &&
                 g.output == output;
        });
        const bool want = expected[static_cast<std::size_t>(output)];
        if (flag != nullptr && flag->requires_grad == want) continue;
        return compare(
            want, flag != nullptr ? std::optional(flag->requires_grad) : std::nullopt,
            place_of(e.c, step, microbatch, layer) + ", output " + std::to_string(output));
      }
    }
    const bool outputs = e.observed.contains(Observable::outputs);
    const auto count = static_cast<int>(outputs ? e.forecast.output_flags.size() : 0);
    for (int index = 0; index < count; ++index) {
      const Observation* o = observations.find([&](const Observation& x) {
        return x.quantity == Quantity::output && x.step == step && x.microbatch == microbatch &&
               x.index == index;
      });
      const bool want = e.forecast.output_flags[static_cast<std::size_t>(index)];
      if (o != nullptr && o->requires_grad == want) continue;
      return compare(want, o != nullptr ? std::optional(o->requires_grad) : std::nullopt,
                     place_of(step, microbatch) + ", model output " + std::to_string(index));
    }
    return std::nullopt;
  });
}

}  // namespace

extern const Law requires_grad_map_law;
const Law requires_grad_map_law{
    .name = kRequiresGradMap,
    .statement =
        "Values inside the model and its outputs require grad exactly "
        "where the rules of each variant say so.",
    .harm = "Part of the model is silently frozen, or trained although it was frozen.",
    .topic = Topic::gradient_flow,
    .check = check_requires_grad_map,
    .reads = {Observable::grad_flags}};

}  // namespace rematch
