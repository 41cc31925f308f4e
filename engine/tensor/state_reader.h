#pragma once

#include "engine/tensor/tensor.h"

namespace rematch {

/// While it is the ambient one, it says what layers read of states that forwards change.
class StateReader {
 public:
  virtual ~StateReader() = default;
  virtual Tensor read(const Tensor& state) = 0;
};

/// A copy of `state`, or, in a recomputation, what the forward read in its place: the state may
/// have moved on since. A layer reads any state that its forwards change through this, once,
/// whether its results are computed or recalled. Nothing may write to what is returned. No op:
/// watchers see nothing of it.
Tensor read_state(const Tensor& state);

/// A copy of `state` as it is now, which watchers do not see either.
Tensor copy_of_state(const Tensor& state);

}  // namespace rematch
