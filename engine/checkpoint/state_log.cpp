#include "engine/checkpoint/state_log.h"

#include <string>

#include "engine/checkpoint/error.h"

namespace rematch {

void StateLog::add(Tensor value) {
  values_.push_back(std::move(value));
  values_.back().storage()->hold();
}

void StateLog::remove_last() noexcept {
  values_.back().storage()->drop();
  values_.pop_back();
}

void StateLog::clear() noexcept {
  for (const Tensor& value : values_) value.storage()->drop();
  values_.clear();
}

Tensor StateRecording::read(const Tensor& state) {
  Tensor value = outer_ != nullptr ? outer_->read(state) : copy_of_state(state);
  log_.add(value);
  return value;
}

void StateRecording::unread() noexcept {
  log_.remove_last();
  if (outer_ != nullptr) outer_->unread();
}

Tensor StateRecall::read(const Tensor& state) {
  const std::size_t index = next_++;
  const std::vector<Tensor>& values = log_.values();
  if (index >= values.size() && !log_.closed()) return copy_of_state(state);
  const auto fail = [&](const std::string& forward) {
    throw CheckpointError("[checkpoint] the recomputation reads state " + std::to_string(index) +
                          " (" + text_of(state) + "), the forward read " + forward +
                          "; the function must do the same each time");
  };
  if (index >= values.size()) fail(std::to_string(values.size()));
  const Tensor& value = values[index];
  if (!(value.shape() == state.shape()) || value.dtype() != state.dtype()) fail(text_of(value));
  return mechanics_.recall_state(values, index, state);
}

}  // namespace rematch
