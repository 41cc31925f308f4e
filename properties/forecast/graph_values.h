#pragma once

#include <cstdint>

#include "properties/forecast/heap.h"

namespace rematch {

/// The gradients of a symbolic run: memory, and the formula that yields the numbers, as a 64-bit
/// hash. A layer's backward mixes the layer and the operand into the hash of what arrives; a sum is
/// commutative but not associative, as floating-point addition is. Two gradients with equal hashes
/// come of the same operations in the same order, so their bits must agree; where the hashes
/// differ, the order of a sum differs.
struct SymbolicGradient {
  Block block;
  std::uint64_t formula = 0;
  explicit operator bool() const { return static_cast<bool>(block); }
  void reset() { block.reset(); }
};

/// Where a gradient goes: to a slot of the node that made the value, to a leaf, or nowhere.
struct SymbolicEdge {
  int slot = -1;
  int leaf = -1;
  bool needed() const { return slot >= 0 || leaf >= 0; }
};

/// A tensor of a symbolic run: its memory, whether it requires grad, and where its gradient goes.
struct SymbolicValue {
  Block block;
  bool requires_grad = false;
  bool half = false;  ///< bfloat16.
  SymbolicEdge edge;
  SymbolicEdge gradient() const { return requires_grad ? edge : SymbolicEdge{}; }
};

}  // namespace rematch
