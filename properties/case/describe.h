#pragma once

#include <string>

#include "properties/case/case.h"

namespace rematch {

/// The case in a few lines of words; checkpointed segments stand in brackets:
///   float32 [4, 7] -> [0: linear 5 -> 1: dropout 0.5] -> 2: linear 3
///   plan: sequential, 2 segments, the last stored, reentrant
///   protocol: 2 steps, adam 0.05, mse; input requires grad
///   seed 42
/// The case is valid.
std::string describe(const Case& c);

}  // namespace rematch
