#include "properties/subjects/trial.h"

#include "engine/ambient/ambient.h"

namespace rematch {

WrittenTo::WrittenTo(const Tensor& t) : tensor_(t), before_(static_cast<std::size_t>(t.bytes())) {
  t.copy_to_host(before_);
  std::vector<std::byte> other = before_;
  // Another value, whatever it is: of each element the sign changes, and some other bits.
  for (std::byte& b : other) b ^= std::byte{0x81};
  write(other);
}

WrittenTo::~WrittenTo() { write(before_); }

void WrittenTo::write(std::span<const std::byte> bytes) {
  tensor_.storage()->before_write();
  tensor_.copy_from_host(bytes);
  tensor_.storage()->bump_version();
}

std::string left_behind() {
  const Ambient& state = ambient();
  std::string text;
  const auto name_if = [&](bool changed, const char* what) {
    if (changed) text += (text.empty() ? "" : ", ") + std::string(what);
  };
  name_if(!state.grad_enabled, "grad mode");
  name_if(state.autocast.enabled || state.autocast.cache, "autocast");
  name_if(state.hooks != nullptr, "hooks on saved tensors");
  name_if(state.ops != nullptr, "watcher of ops");
  name_if(state.recomputing, "mark of a recomputation");
  name_if(state.backward_id != 0, "running backward");
  name_if(state.backward_group != nullptr, "group of backwards");
  name_if(state.early_stop.has_value(), "early stop");
  return text;
}

}  // namespace rematch
