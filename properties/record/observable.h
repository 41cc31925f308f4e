#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "properties/layers/enum_set.h"

namespace rematch {

/// A part of a record. A subject says which of them its runs fill in; a law says which it reads,
/// and is not asked of a subject that lacks one.
enum class Observable : std::uint8_t {
  outputs,              ///< Quantity::output.
  losses,               ///< Quantity::loss.
  input_gradients,      ///< Quantity::input_gradient.
  parameter_gradients,  ///< Quantity::parameter_gradient.
  absent_gradients,     ///< Observation::present of gradients: absent differs from zero.
  parameters,           ///< Quantity::parameter.
  buffers,              ///< Quantity::buffer.
  reevaluation,         ///< Quantity::reevaluation.
  grad_flags,           ///< Record::grad_flags, and Observation::requires_grad of outputs.
  draws,                ///< Record::draws.
  rng_state,            ///< Record::streams: equal readings mean equal states.
  rng_offsets,          ///< StreamReading::offset counts words, a multiple of 4 for each draw.
  recomputed_values,    ///< Record::values.
  executions,           ///< ExecutionCount::count.
  computations,         ///< ExecutionCount::computed.
  execution_order,      ///< Event::layer in Record::live.
  hooks,                ///< Record::hooks.
  saved_bytes,          ///< Record::bytes.
  live_bytes,           ///< Record::live, all events with their bytes.
  saved_tensors,        ///< RunRequest::layer_values is understood, memory and bytes included.
  injected_failures,    ///< Record::trial.
  displacement,         ///< RunRequest::displacement is understood.
  host_agreement,       ///< RunRequest::compare_layers is understood.
};

inline constexpr std::size_t kObservableCount =
    static_cast<std::size_t>(Observable::host_agreement) + 1;
using Observables = EnumSet<Observable, kObservableCount>;

/// "rng_state".
std::string_view to_string(Observable observable);
/// nullopt when there is none of that name.
std::optional<Observable> observable_named(std::string_view name);

}  // namespace rematch
