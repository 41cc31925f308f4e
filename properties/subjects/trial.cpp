#include "properties/subjects/trial.h"

#include <cstring>

#include "engine/ambient/ambient.h"
#include "engine/tensor/dispatch.h"

namespace rematch {

WrittenTo::WrittenTo(const Tensor& t, What what)
    : tensor_(t), what_(what), before_(static_cast<std::size_t>(t.bytes())) {
  t.copy_to_host(before_);
  std::vector<std::byte> other = before_;
  if (what == What::everything) {
    // Another value, whatever it is: of each element the sign changes, and some other bits.
    for (std::byte& b : other) b ^= std::byte{0x81};
  } else {
    for_gradients(t.dtype(), "trial", [&]<class T>() {
      T last;
      std::memcpy(&last, &*(other.end() - sizeof(T)), sizeof(T));
      // No activation gives the same for both signs.
      last = static_cast<T>(static_cast<float>(last) > 0 ? -1.0F : 1.0F);
      std::memcpy(&*(other.end() - sizeof(T)), &last, sizeof(T));
    });
  }
  write(other);
}

WrittenTo::~WrittenTo() { write(before_); }

void WrittenTo::write(std::span<const std::byte> bytes) {
  if (what_ == What::everything) tensor_.storage()->before_write();
  tensor_.copy_from_host(bytes);
  if (what_ == What::everything) tensor_.storage()->bump_version();
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
