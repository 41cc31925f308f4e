#pragma once

#include <functional>
#include <stdexcept>
#include <string_view>

#include "engine/checkpoint/mechanics.h"
#include "engine/checkpoint/region.h"
#include "engine/tensor/tensor.h"

namespace rematch {

/// Any function of tensors; parameters may be captured. It must compute the same when called again.
using Function = std::function<Tensors(const Tensors&)>;

/// A recomputation did not do what the forward did.
class CheckpointError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct CheckpointOptions {
  /// true: a node of its own runs the function without recording and, in backward, recomputes it
  /// and differentiates the recomputation. false: the function is recorded as usual, but what its
  /// graph saves is dropped and computed again on first use.
  bool reentrant = false;
  /// Recomputations start from the random state at which the function began.
  bool preserve_rng = true;
  /// Non-reentrant: a recomputation stops when the last saved tensor is there; see compose().
  /// EarlyStop overrides it.
  bool early_stop = true;
  /// A recomputation that differs throws CheckpointError.
  DeterminismCheck determinism = DeterminismCheck::metadata;
  /// Non-reentrant: the ops whose results are kept for the recomputation. Such a region can be
  /// walked back once.
  Policy policy = nullptr;
  /// nullptr: correct_mechanics(). Must outlive the graph.
  const Mechanics* mechanics = nullptr;
};

/// Runs `function(inputs)`; its intermediate results are not kept for backward but computed again
/// there. Returns what the function returned. With grad mode off it just runs the function.
///
/// Reentrant: when none of `inputs` requires grad, nothing is recorded, so parameters used by the
/// function get no gradient (frozen_checkpoint_warnings() counts it); otherwise every floating
/// output requires grad. Backward must not be partial (grad(), or backward with inputs):
/// std::invalid_argument. Non-reentrant: exactly what a plain run records, with one recomputation
/// per backward. Errors: std::invalid_argument for an empty function, undefined inputs;
/// CheckpointError in backward when the recomputation does not match. Reentrant,
/// std::invalid_argument also when the function changes an input in place or returns an undefined
/// tensor.
Tensors checkpoint(const Function& function, const Tensors& inputs,
                   const CheckpointOptions& options = {});

/// Number of reentrant checkpoints that saw no input that requires grad, on this thread: each is
/// probably a mistake that freezes the parameters behind it.
std::int64_t frozen_checkpoint_warnings();

/// What to tell the user for each of them. The engine itself writes nowhere.
inline constexpr std::string_view kFrozenCheckpointWarning =
    "[checkpoint] no input of this reentrant checkpoint requires grad, so its outputs do not "
    "either "
    "and the parameters that it uses get no gradient; use reentrant = false, or let an input "
    "require grad";

/// The mechanics to be used: those of the options, or the correct ones.
inline const Mechanics& mechanics_of(const CheckpointOptions& options) {
  return options.mechanics != nullptr ? *options.mechanics : correct_mechanics();
}

}  // namespace rematch
