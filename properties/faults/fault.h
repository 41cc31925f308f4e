#pragma once

#include <span>
#include <string_view>

#include "engine/checkpoint/mechanics.h"

namespace rematch {

/// A deliberately wrong checkpointing mechanism: the proof that the laws can fail. The engine holds
/// no fault; a fault overrides one of its mechanics.
struct Fault {
  /// Letter of its family and a number: R random state, G gradient flow, P partition, L
  /// lifetime.
  std::string_view id;
  std::string_view statement;  ///< One sentence: what the wrong engine does.
  const Mechanics* mechanics;
};

std::span<const Fault> faults();

/// nullptr when there is none of that id.
const Fault* find_fault(std::string_view id);

}  // namespace rematch
