#include <algorithm>
#include <array>
#include <iterator>

#include "scenarios/report/scenario.h"

// In the order of README.md. Each is defined in stories/NAME.cpp.
#define REMATCH_EACH_STORY(STORY) \
  STORY(last_segment)             \
  STORY(memory_trade)             \
  STORY(transformer_block)        \
  STORY(preserve_rng)             \
  STORY(frozen_first_block)       \
  STORY(frozen_embeddings)        \
  STORY(lora)                     \
  STORY(gradients_stay_none)      \
  STORY(batch_norm_twice)         \
  STORY(scale_history)            \
  STORY(kv_cache)                 \
  STORY(moe_routing)              \
  STORY(save_before_fill)         \
  STORY(weights_changed)          \
  STORY(side_output)              \
  STORY(same_tensor_twice)        \
  STORY(tied_weights)             \
  STORY(hooks_once_per_segment)   \
  STORY(uniform_chunks)           \
  STORY(nested_plan)              \
  STORY(one_segment)              \
  STORY(memory_never_freed)

namespace rematch::scenarios {

#define REMATCH_DECLARE(name) extern const Scenario name;
REMATCH_EACH_STORY(REMATCH_DECLARE)
#undef REMATCH_DECLARE

std::span<const Scenario> scenarios() {
#define REMATCH_LIST(name) name,
  static const std::array kScenarios{REMATCH_EACH_STORY(REMATCH_LIST)};
#undef REMATCH_LIST
  return kScenarios;
}

const Scenario* find_scenario(std::string_view name) {
  const auto all = scenarios();
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const Scenario& scenario) { return scenario.name == name; });
  return found == all.end() ? nullptr : &*found;
}

std::span<const Recorded> Advice::seen() const {
  const auto* const end = std::find_if(std::begin(recorded), std::end(recorded),
                                       [](const Recorded& one) { return one.probe.empty(); });
  return {std::begin(recorded), end};
}

std::string Advice::probes() const {
  std::string names;
  std::string_view last;
  for (const Recorded& r : seen()) {
    if (r.probe == last) continue;
    last = r.probe;
    names += (names.empty() ? "" : ", ") + std::string(last);
  }
  return names;
}

}  // namespace rematch::scenarios
