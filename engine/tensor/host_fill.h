#pragma once

#include <span>
#include <vector>

#include "engine/tensor/tensor.h"

namespace rematch {

/// Lets fill(std::span<T>) say the values of `t`, whose dtype is T's: in place on the CPU, else on
/// the host, to be copied. The span holds uninitialised or zero values before.
template <class T, class Fill>
void fill_on_host(Tensor& t, Fill fill) {
  const auto n = static_cast<std::size_t>(t.elements());
  if (t.device() == Device::cpu) {
    fill(std::span<T>(t.data<T>(), n));
    return;
  }
  std::vector<T> values(n);
  fill(std::span<T>(values));
  t.copy_from_host(std::as_bytes(std::span(values)));
}

}  // namespace rematch
