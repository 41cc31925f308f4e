#pragma once

#include <cstddef>

namespace rematch::cuda {

/// The most that goes through pinned memory on its way to the device.
inline constexpr std::size_t kMostStaged = std::size_t{1} << 16;

/// A copy of `bytes` (at most kMostStaged) at `from` in pinned memory, for one copy to the device
/// that the caller queues on stream() before the next call; nullptr when no memory can be pinned.
/// Seldom waits, and then for copies that were queued long ago. Not for captures.
const void* staged(const void* from, std::size_t bytes);

}  // namespace rematch::cuda
