#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

namespace rematch {

/// Released blocks by size class, newest first. Four classes per power of two from 64 bytes on: at
/// most a quarter of a block is slack.
class BlockCache {
 public:
  static constexpr std::int64_t kAlignment = 64;

  struct SizeClass {
    std::size_t index;
    std::int64_t bytes;
  };
  static SizeClass size_class(std::int64_t bytes) {
    const auto need = static_cast<std::uint64_t>(std::max(bytes, kAlignment));
    const int log2 = std::bit_width(need - 1) - 1;
    const int shift = std::max(log2 - 2, 6);
    const std::uint64_t units = (need + (std::uint64_t{1} << shift) - 1) >> shift;
    return {static_cast<std::size_t>(shift - 6) * 8 + static_cast<std::size_t>(units),
            static_cast<std::int64_t>(units << shift)};
  }

  /// Keeps at most `limit` bytes.
  explicit BlockCache(std::int64_t limit) : limit_(limit) {}

  /// A block of the class, or nullptr when none is kept.
  void* take(SizeClass c) {
    if (c.index >= blocks_.size() || blocks_[c.index].empty()) return nullptr;
    void* block = blocks_[c.index].back();
    blocks_[c.index].pop_back();
    bytes_ -= c.bytes;
    return block;
  }

  /// Whether the block was kept; if not it is still the caller's.
  bool keep(SizeClass c, void* block) noexcept {
    if (c.bytes > limit_ - bytes_) return false;
    try {
      if (c.index >= blocks_.size()) blocks_.resize(c.index + 1);
      blocks_[c.index].push_back(block);
    } catch (const std::bad_alloc&) {
      // There is no memory to note it.
      return false;
    }
    bytes_ += c.bytes;
    return true;
  }

  /// Hands every kept block to `free`.
  template <class Free>
  void drain(const Free& free) {
    for (auto& blocks : blocks_) {
      for (void* block : blocks) free(block);
      blocks.clear();
    }
    bytes_ = 0;
  }

  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

 private:
  std::int64_t limit_;
  std::int64_t bytes_ = 0;
  std::vector<std::vector<void*>> blocks_;
};

}  // namespace rematch
