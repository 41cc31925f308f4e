#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/memory/resource.h"

namespace rematch::cuda {

/// Values on their way to the host, for MemoryResource::read(). They are copied aside on the
/// device, many at a time and as late as their blocks allow, and brought over with one copy and one
/// wait.
class Readback {
 public:
  Readback() = default;
  Readback(const Readback&) = delete;
  Readback& operator=(const Readback&) = delete;
  ~Readback();

  /// false: there is no room, not even after the others have been brought over.
  bool add(const void* block, std::int64_t bytes, MemoryResource::Reader& reader);
  /// The block's content is about to change.
  void settle(const void* block) noexcept;
  void settle() noexcept;
  /// Brings all over, and calls the readers in their order.
  void finish();
  void drop() noexcept;

 private:
  struct Read {
    const void* block;
    std::int64_t bytes;
    std::int64_t at;
    MemoryResource::Reader reader;
  };

  bool make_room(std::int64_t bytes);
  void give_back() noexcept;

  std::vector<Read> reads_;
  /// So many have been copied aside.
  std::size_t settled_ = 0;
  std::byte* aside_ = nullptr;
  std::byte* host_ = nullptr;
  std::int64_t capacity_ = 0;
  std::int64_t used_ = 0;
};

}  // namespace rematch::cuda
