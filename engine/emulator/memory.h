#pragma once

#include <cstddef>
#include <span>

namespace rematch::emulator {

/// While one of these lives, device memory can be touched. At other times an access ends the
/// process: host code that follows a device pointer does so on a GPU as well. Locking costs some
/// 0.1 ms a call; REMATCH_EMULATOR_LOCK=off leaves it out, for long hunts.
class Unlocked {
 public:
  Unlocked();
  ~Unlocked();
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;
};

/// The block of the device, or the pinned one, in which an address lies; empty for none.
std::span<std::byte> reachable_block(const void* at);

}  // namespace rematch::emulator
