#pragma once

#include <exception>

#include "engine/tensor/tensor.h"

namespace rematch {

/// While it is the ambient one, it says what layers read of states that forwards change.
class StateReader {
 public:
  virtual ~StateReader() = default;
  virtual Tensor read(const Tensor& state) = 0;
  /// Takes back the last read: the op that it was for has failed, and may be tried again.
  virtual void unread() noexcept {}
};

/// A copy of `state`, or, in a recomputation, what the forward read in its place: the state may
/// have moved on since. A layer reads any state that its forwards change through this, once,
/// whether its results are computed or recalled. Nothing may write to what is returned. No op:
/// watchers see nothing of it.
Tensor read_state(const Tensor& state);

/// Value of a state as an op reads it, which is taken back where the op throws.
class StateRead {
 public:
  explicit StateRead(const Tensor& state) : value(read_state(state)) {}
  ~StateRead();
  StateRead(const StateRead&) = delete;
  StateRead& operator=(const StateRead&) = delete;

  const Tensor value;

 private:
  int exceptions_ = std::uncaught_exceptions();
};

/// A copy of `state` as it is now, which watchers do not see either.
Tensor copy_of_state(const Tensor& state);

}  // namespace rematch
