#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rematch {

/// One random stream: Philox4x32-10 with `seed` as key and `stream` as cuRAND subsequence. Word i
/// of the stream is a pure function of (seed, stream, i); `offset` is the next word to be used.
/// The state is a value: copy it to store it, assign it to restore it.
struct Generator {
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;
  std::uint64_t offset = 0;

  /// Takes `words` words and returns the offset of the first. The offset advances by `words`
  /// rounded up to a multiple of 4, so a draw always starts on a Philox block and no word is ever
  /// used twice.
  std::uint64_t draw(std::int64_t words) {
    const std::uint64_t first = offset;
    offset += (static_cast<std::uint64_t>(words) + 3) / 4 * 4;
    return first;
  }

  friend bool operator==(const Generator&, const Generator&) = default;
};

/// The named streams of one worker. Stream 0, "default", always exists and is what layers draw
/// from unless told otherwise. A stream's subsequence is its position.
class Streams {
 public:
  Streams() : Streams(0) {}
  explicit Streams(std::uint64_t seed);

  /// Sets every stream to `seed`, offset 0.
  void seed(std::uint64_t seed);
  /// Adds a stream (or finds it) and returns its position.
  int add(std::string_view name);
  /// Throws std::invalid_argument for an unknown name.
  Generator& operator[](std::string_view name);
  /// Throws std::invalid_argument for a position that no stream has.
  Generator& at(int position) {
    if (position < 0 || position >= size()) no_such_stream(position);
    return generators_[static_cast<std::size_t>(position)];
  }
  const std::vector<Generator>& states() const { return generators_; }
  /// Restores what states() returned; throws std::invalid_argument when the counts differ.
  void restore(const std::vector<Generator>& states);
  const std::string& name(int position) const { return names_[static_cast<std::size_t>(position)]; }
  int size() const { return static_cast<int>(generators_.size()); }

 private:
  [[noreturn]] void no_such_stream(int position) const;

  std::vector<Generator> generators_;
  std::vector<std::string> names_;
};

}  // namespace rematch
