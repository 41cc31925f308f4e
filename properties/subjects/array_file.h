#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace rematch {

/// Arrays from this size on are passed by file.
inline constexpr std::size_t kLargeArray = std::size_t{1} << 20;

/// The large arrays of a message, in memory that another process of the same user can open as a
/// file. It has no name in any folder, so nothing is left of it when this object, or the process,
/// has ended.
class ArrayFile {
 public:
  ArrayFile() = default;
  ~ArrayFile() { clear(); }
  ArrayFile(const ArrayFile&) = delete;
  ArrayFile& operator=(const ArrayFile&) = delete;

  /// Appends the bytes and returns their offset, a multiple of 64. Throws NotJudged when the system
  /// has no memory for them.
  std::size_t append(std::span<const std::byte> bytes);
  /// "/proc/123/fd/10", once something was appended.
  std::string path() const;
  /// From now on the file cannot be changed.
  void seal();
  /// Begins another file. Processes that have opened this one keep it.
  void clear() noexcept;

 private:
  int fd_ = -1;
  std::size_t size_ = 0;
};

}  // namespace rematch
