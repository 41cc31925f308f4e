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
  outputs,              ///< Outputs of the model (Quantity::output).
  losses,               ///< Losses (Quantity::loss).
  input_gradients,      ///< Gradients of model inputs (Quantity::input_gradient).
  parameter_gradients,  ///< Gradients of parameters (Quantity::parameter_gradient).
  absent_gradients,     ///< Which gradients are None, not zero (Observation::present).
  parameters,           ///< Parameters after each optimizer step (Quantity::parameter).
  buffers,              ///< Buffers after each optimizer step (Quantity::buffer).
  reevaluation,         ///< Output of the trained model on a new input (Quantity::reevaluation).
  grad_flags,           ///< Which values require grad (Record::grad_flags).
  draws,                ///< Every random draw of a layer (Record::draws).
  rng_state,            ///< Random states: equal readings mean equal states (Record::streams).
  rng_offsets,          ///< Words drawn so far, a multiple of 4 a draw (StreamReading::offset).
  recomputed_values,    ///< Values that layers compute and save (Record::values).
  executions,           ///< Runs of each layer (ExecutionCount::count).
  computations,         ///< Runs in which a layer computed (ExecutionCount::computed).
  execution_order,      ///< Order in which layers run (Event::layer in Record::live).
  hooks,                ///< Calls of each gradient hook (Record::hooks).
  saved_bytes,          ///< Bytes that a forward saves for its backward (Record::bytes).
  live_bytes,           ///< Live bytes at every event (Record::live).
  saved_tensors,        ///< Tensors that layers save (RunRequest::layer_values is understood).
  injected_failures,    ///< How a trial ended (Record::trial).
  promises,             ///< Whether a promise that the case tried is kept (Record::promises).
  displacement,         ///< Runs with displaced parameters (RunRequest::displacement).
  host_agreement,       ///< Layers run on host and device (RunRequest::compare_layers).
  held_bytes,           ///< Bytes that forwards made and that are held still (Record::held).
  released_bytes,       ///< Bytes saved that a backward leaves (Record::bytes).
  exact_bytes,          ///< Record::bytes counts saved tensors alone, and no copies of others.
  held_layers,          ///< The same when layers begin and end (Event::layer in Record::held).
  collectives,          ///< Units of a wrapping, and each collective (Record::collectives).
};

inline constexpr std::size_t kObservableCount =
    static_cast<std::size_t>(Observable::collectives) + 1;
using Observables = EnumSet<Observable, kObservableCount>;

/// "rng_state".
std::string_view to_string(Observable observable);
/// nullopt when there is none of that name.
std::optional<Observable> observable_named(std::string_view name);

}  // namespace rematch
