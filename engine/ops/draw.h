#pragma once

#include <vector>

#include "engine/ambient/ambient.h"
#include "engine/ops/support.h"
#include "engine/tensor/tensor.h"

namespace rematch {

/// compute() for an op that draws a word per element of `x` from an ambient stream: body(generator
/// as it was before). The stream advances even when the results are recalled, or what the region
/// draws next would be what this op drew; it does not when the op is refused or fails.
template <class Body>
auto compute_draw(const OpCall& call, const Tensor& x, int stream, Body&& body) {
  const Generator before = ambient().streams.at(stream);
  ambient().streams.at(stream).draw(x.elements());
  try {
    return compute(call, [&] { return body(before); });
  } catch (...) {
    ambient().streams.at(stream) = before;
    throw;
  }
}

/// Tells the ambient observer, if any, what was drawn.
inline void report_draw(const Generator& before, const Tensor& drawn) {
  if (RunObserver* observer = ambient().observer) {
    const auto bytes = static_cast<std::size_t>(drawn.bytes());
    if (drawn.device() == Device::cpu) {
      observer->on_draw(before, drawn.elements(), {drawn.raw(), bytes});
      return;
    }
    std::vector<std::byte> host(bytes);
    drawn.copy_to_host(host);
    observer->on_draw(before, drawn.elements(), host);
  }
}

}  // namespace rematch
