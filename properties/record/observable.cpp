#include "properties/record/observable.h"

#include <algorithm>
#include <array>

namespace rematch {
namespace {

constexpr std::array<std::string_view, kObservableCount> kNames{"outputs",
                                                                "losses",
                                                                "input_gradients",
                                                                "parameter_gradients",
                                                                "absent_gradients",
                                                                "parameters",
                                                                "buffers",
                                                                "reevaluation",
                                                                "grad_flags",
                                                                "draws",
                                                                "rng_state",
                                                                "rng_offsets",
                                                                "recomputed_values",
                                                                "executions",
                                                                "computations",
                                                                "execution_order",
                                                                "hooks",
                                                                "saved_bytes",
                                                                "live_bytes",
                                                                "saved_tensors",
                                                                "injected_failures",
                                                                "promises",
                                                                "displacement",
                                                                "host_agreement",
                                                                "held_bytes",
                                                                "released_bytes",
                                                                "exact_bytes",
                                                                "held_layers",
                                                                "collectives"};

}  // namespace

std::string_view to_string(Observable observable) {
  return kNames[static_cast<std::size_t>(observable)];
}

std::optional<Observable> observable_named(std::string_view name) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<Observable>(found - kNames.begin());
}

}  // namespace rematch
