#pragma once

#include <utility>
#include <vector>

#include "engine/ambient/ambient.h"
#include "engine/ops/support.h"
#include "engine/tensor/tensor.h"

namespace rematch {

/// compute() for an op that draws `words` words from an ambient stream: body(generator
/// as it was before). The stream advances even when the results are recalled, or what the region
/// draws next would be what this op drew; it does not when the op is refused or fails.
template <class Body>
auto compute_draw(const OpCall& call, std::int64_t words, int stream, Body&& body) {
  const Generator before = ambient().streams.at(stream);
  ambient().streams.at(stream).draw(words);
  try {
    return compute(call, [&] { return body(before); });
  } catch (...) {
    ambient().streams.at(stream) = before;
    throw;
  }
}

/// Tells the ambient observer, if any, what was drawn into a block of `memory`.
inline void report_draw(const Generator& before, std::int64_t elements, MemoryResource& memory,
                        const void* block, std::int64_t bytes) {
  RunObserver* observer = ambient().observer;
  if (observer == nullptr) return;
  if (MemoryResource::Reader later = observer->on_later_draw(before, elements)) {
    memory.read(block, bytes, std::move(later));
    return;
  }
  std::vector<std::byte> host(static_cast<std::size_t>(bytes));
  if (bytes > 0) memory.copy_out(host.data(), block, bytes);
  observer->on_draw(before, elements, host);
}

inline void report_draw(const Generator& before, const Tensor& drawn) {
  RunObserver* observer = ambient().observer;
  if (observer == nullptr) return;
  if (drawn.device() == Device::cpu) {
    const auto bytes = static_cast<std::size_t>(drawn.bytes());
    observer->on_draw(before, drawn.elements(), {drawn.raw(), bytes});
    return;
  }
  report_draw(before, drawn.elements(), drawn.storage()->memory(), drawn.raw(), drawn.bytes());
}

}  // namespace rematch
