#pragma once

#include <functional>

#include "engine/checkpoint/checkpoint.h"

namespace rematch::scenarios {

/// The two steps of a hand-written checkpoint at which people err.
struct RecomputationSteps {
  /// What stands for the inputs in the recomputation. Right: each by itself, with its values,
  /// without its history, and with its requires_grad.
  std::function<Tensors(const Tensors& inputs)> bind;
  /// From the recomputation's outputs that received a gradient, and these: the gradients of the
  /// inputs. Right: backward(), which also reaches the parameters, then the bound inputs' .grad.
  std::function<Tensors(const Tensors& outputs, const Tensors& gradients, const Tensors& bound)>
      differentiate;
};

/// The right ones.
RecomputationSteps right_steps();

/// checkpoint() as one writes it by hand in a screenful: runs the function without recording, and
/// in backward runs it once more and differentiates that. It knows nothing of random state and of
/// layers that carry state; apart from these it is right with right_steps().
Tensors handmade_checkpoint(const Function& function, const Tensors& inputs,
                            const RecomputationSteps& steps);

}  // namespace rematch::scenarios
