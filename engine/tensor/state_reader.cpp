#include "engine/tensor/state_reader.h"

#include "engine/ambient/ambient.h"

namespace rematch {

Tensor read_state(const Tensor& state) {
  StateReader* reader = ambient().states;
  return reader != nullptr ? reader->read(state) : copy_of_state(state);
}

StateRead::~StateRead() {
  StateReader* reader = ambient().states;
  if (reader != nullptr && std::uncaught_exceptions() > exceptions_) reader->unread();
}

Tensor copy_of_state(const Tensor& state) {
  Tensor copy = Tensor::empty(state.shape(), state.dtype());
  copy.storage()->memory().copy(copy.raw(), state.raw(), copy.bytes());
  return copy;
}

}  // namespace rematch
