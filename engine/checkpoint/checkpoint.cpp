#include "engine/checkpoint/checkpoint.h"

#include <string>

#include "engine/checkpoint/frame.h"
#include "engine/checkpoint/reentrant.h"

namespace rematch {

Tensors checkpoint(const Function& function, const Tensors& inputs,
                   const CheckpointOptions& options) {
  if (!function) {
    throw std::invalid_argument("[checkpoint] a function to run is expected, got an empty one");
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) {
      throw std::invalid_argument("[checkpoint] input " + std::to_string(i) + " is undefined");
    }
  }
  if (options.reentrant && options.policy) {
    throw std::invalid_argument(
        "[checkpoint] a policy belongs to the non-reentrant variant; set reentrant = false");
  }
  if (!ambient().grad_enabled) return function(inputs);
  return options.reentrant ? checkpoint_reentrant(function, inputs, options)
                           : checkpoint_non_reentrant(function, inputs, options);
}

}  // namespace rematch
