#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace rematch {

/// A set of values of an enum whose values are 0 .. Count - 1.
template <class Enum, std::size_t Count>
class EnumSet {
 public:
  constexpr EnumSet() = default;
  constexpr EnumSet(std::initializer_list<Enum> values) {
    for (const Enum value : values) insert(value);
  }
  static constexpr EnumSet all() {
    EnumSet set;
    for (std::size_t i = 0; i < Count; ++i) set.insert(static_cast<Enum>(i));
    return set;
  }

  constexpr void insert(Enum value) { word_of(value) |= bit_of(value); }
  constexpr void erase(Enum value) { word_of(value) &= ~bit_of(value); }
  constexpr bool contains(Enum value) const {
    return (words_[static_cast<std::size_t>(value) / 64] & bit_of(value)) != 0;
  }
  constexpr bool contains_all(const EnumSet& other) const { return other.without(*this).empty(); }
  constexpr bool empty() const { return *this == EnumSet(); }
  constexpr std::size_t size() const {
    std::size_t count = 0;
    for (const std::uint64_t word : words_) count += static_cast<std::size_t>(std::popcount(word));
    return count;
  }
  constexpr EnumSet without(const EnumSet& other) const {
    EnumSet rest;
    for (std::size_t i = 0; i < kWords; ++i) rest.words_[i] = words_[i] & ~other.words_[i];
    return rest;
  }

  /// Calls visit(value) for each member, in ascending order.
  template <class Visit>
  constexpr void for_each(Visit visit) const {
    for (std::size_t i = 0; i < Count; ++i) {
      if (contains(static_cast<Enum>(i))) visit(static_cast<Enum>(i));
    }
  }

  friend constexpr bool operator==(const EnumSet&, const EnumSet&) = default;

 private:
  static constexpr std::size_t kWords = (Count + 63) / 64;
  static constexpr std::uint64_t bit_of(Enum value) {
    return std::uint64_t{1} << static_cast<std::size_t>(value) % 64;
  }
  constexpr std::uint64_t& word_of(Enum value) {
    return words_[static_cast<std::size_t>(value) / 64];
  }

  std::array<std::uint64_t, kWords> words_{};
};

}  // namespace rematch
