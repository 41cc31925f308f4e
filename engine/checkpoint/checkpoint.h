#pragma once

#include <functional>
#include <string_view>

#include "engine/checkpoint/error.h"
#include "engine/checkpoint/mechanics.h"
#include "engine/checkpoint/region.h"
#include "engine/tensor/tensor.h"

namespace rematch {

/// Any function of tensors; it may capture parameters. Every call with the same inputs must compute
/// the same results.
using Function = std::function<Tensors(const Tensors&)>;

struct CheckpointOptions {
  /// true: the function runs with grad mode off inside a single graph node, whose backward
  /// recomputes it and differentiates the recomputation. false: the function is recorded as usual,
  /// but the tensors that its graph saves are dropped, and recomputed on first use.
  bool reentrant = false;
  /// Recomputations start from the random state that the function started from.
  bool preserve_rng = true;
  /// Non-reentrant: a recomputation stops once the last saved tensor has been recomputed; see
  /// compose(). An EarlyStop scope overrides this option.
  bool early_stop = true;
  /// Chooses what forward and recomputation must agree in; a difference throws CheckpointError.
  DeterminismCheck determinism = DeterminismCheck::metadata;
  /// Non-reentrant: selects the ops whose results are kept for the recomputation. Kept results
  /// serve one backward only.
  Policy policy = nullptr;
  /// nullptr: correct_mechanics(). Must outlive the graph.
  const Mechanics* mechanics = nullptr;
};

/// Runs `function(inputs)` and returns its result. Intermediate results are not kept for backward;
/// backward recomputes them. With grad mode off this only runs the function.
///
/// Reentrant: if none of `inputs` requires grad, nothing is recorded, and parameters that the
/// function uses get no gradient (frozen_checkpoint_warnings() counts these calls). Otherwise every
/// floating-point output requires grad. A partial backward (grad(), or backward with inputs) throws
/// std::invalid_argument. Non-reentrant: records exactly what a plain run records, and recomputes
/// once per backward. Errors: std::invalid_argument for an empty function or undefined inputs;
/// CheckpointError in backward if the recomputation does not match. The reentrant variant also
/// throws std::invalid_argument if the function changes an input in place or returns an undefined
/// tensor.
Tensors checkpoint(const Function& function, const Tensors& inputs,
                   const CheckpointOptions& options = {});

/// Number of reentrant checkpoint() calls on this thread in which no input required grad. Each is
/// probably a mistake: the parameters inside are frozen.
std::int64_t frozen_checkpoint_warnings();

/// The warning text for such a call. The engine itself prints nothing.
inline constexpr std::string_view kFrozenCheckpointWarning =
    "[checkpoint] no input of this reentrant checkpoint requires grad, so its outputs do not "
    "either "
    "and the parameters that it uses get no gradient; use reentrant = false, or let an input "
    "require grad";

/// The mechanics from the options, or correct_mechanics() if there are none.
inline const Mechanics& mechanics_of(const CheckpointOptions& options) {
  return options.mechanics != nullptr ? *options.mechanics : correct_mechanics();
}

}  // namespace rematch
