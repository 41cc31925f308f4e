#pragma once

#include "properties/case/case.h"

namespace rematch {

/// Why layer `layer` must not overwrite its operand, or nullptr when it may. It may when the
/// operand was freshly made, inside the same segments, by an operation that does not save its own
/// output, and when no other layer reads it. The case's references and plan are in range.
const char* in_place_hazard(const Case& c, int layer);

/// Whether that failure can happen to that layer; see InjectedFailure.
bool can_happen(FailureKind kind, const LayerSpec& layer);
/// Whether it happens to a layer at all.
constexpr bool has_layer(FailureKind kind) {
  return kind != FailureKind::none && kind != FailureKind::input_changed &&
         kind != FailureKind::graph_dropped;
}
/// Whether each segment, of every level, preserves random state.
bool preserves_rng_everywhere(const Case& c);

/// Whether backwards can be partial under it; see ProtocolSpec::partial.
bool takes_partial(const PlanSpec& plan);
/// The same for ProtocolSpec::auxiliary_losses.
bool takes_auxiliary_losses(const Case& c);
/// The same for ProtocolSpec::loss_scale.
bool takes_loss_scale(const Case& c);

/// The parts of validate() that need no shapes; they throw std::invalid_argument as it does.
void check_inputs(const Case& c);
void check_plan(const Case& c);
void check_protocol(const Case& c);

}  // namespace rematch
