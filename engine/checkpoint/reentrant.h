#pragma once

#include "engine/checkpoint/checkpoint.h"

namespace rematch {

/// The reentrant variant; see checkpoint(). Grad mode is on and the arguments were checked.
Tensors checkpoint_reentrant(const Function& function, const Tensors& inputs,
                             const CheckpointOptions& options);

}  // namespace rematch
