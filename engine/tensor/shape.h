#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <stdexcept>
#include <string>

namespace rematch {

/// Extents of a dense row-major tensor, rank 0 (a scalar) to kMaxRank, without heap memory.
/// Extents are >= 0. Construction throws std::invalid_argument for a rank above kMaxRank, a
/// negative extent, or an element count above kMaxElements (so byte counts never overflow).
class Shape {
 public:
  static constexpr int kMaxRank = 8;
  static constexpr std::int64_t kMaxElements = std::int64_t{1} << 40;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const std::int64_t> dims);

  int rank() const { return rank_; }
  std::int64_t operator[](int i) const { return dims_[static_cast<std::size_t>(i)]; }
  /// Product of the extents; 1 for a scalar.
  std::int64_t elements() const { return elements_; }
  std::span<const std::int64_t> dims() const {
    return {dims_.data(), static_cast<std::size_t>(rank_)};
  }
  /// The same with another extent along one dimension.
  Shape with_extent(int dimension, std::int64_t extent) const;

  friend bool operator==(const Shape& a, const Shape& b) {
    return a.rank_ == b.rank_ && a.dims_ == b.dims_;
  }

 private:
  std::array<std::int64_t, kMaxRank> dims_{};
  std::int64_t elements_ = 1;
  int rank_ = 0;
};

/// "[2, 3, 8, 8]".
std::string to_string(const Shape& shape);

}  // namespace rematch
