#pragma once

#include <functional>
#include <memory>

#include "engine/checkpoint/checkpoint.h"

namespace rematch {

/// A function to judge instead of the engine's checkpoint(): same signature, same contract. For a
/// sequential plan it is called for each checkpointed segment in turn.
using CheckpointFunction =
    std::function<Tensors(const Function&, const Tensors&, const CheckpointOptions&)>;

/// The parts of an engine that can be replaced; nullptr and empty: the engine's own.
struct EngineParts {
  std::shared_ptr<const Mechanics> mechanics;
  CheckpointFunction checkpoint;
};

}  // namespace rematch
