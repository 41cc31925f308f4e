#pragma once

// Which inputs a pooling window meets along one axis, and which windows meet an input.

#include "engine/math/host_device.h"

namespace rematch::math {

template <typename Index>
struct Range {
  Index begin;
  Index end;
};

/// One axis of a pooling: windows of `kernel` inputs, `stride` apart, the first `pad` before input
/// 0; `size` inputs and `out` windows.
template <typename Index>
struct WindowAxis {
  Index size;
  Index out;
  Index kernel;
  Index stride;
  Index pad;

  /// The inputs of window o that exist.
  [[nodiscard]] REMATCH_HD constexpr Range<Index> inputs_of(Index o) const {
    const Index first = o * stride - pad;
    const Index last = first + kernel;
    return {first > 0 ? first : 0, last < size ? last : size};
  }

  /// The windows that contain input i; begin >= end where none does.
  [[nodiscard]] REMATCH_HD constexpr Range<Index> windows_of(Index i) const {
    const Index at = i + pad;
    const Index last = at / stride + 1;
    return {at < kernel ? 0 : (at - kernel) / stride + 1, last < out ? last : out};
  }
};

}  // namespace rematch::math
