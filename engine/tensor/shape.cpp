#include "engine/tensor/shape.h"

namespace rematch {

Shape::Shape(std::span<const std::int64_t> dims) : rank_(static_cast<int>(dims.size())) {
  if (dims.size() > static_cast<std::size_t>(kMaxRank)) {
    throw std::invalid_argument("[shape] rank must be at most " + std::to_string(kMaxRank) +
                                ", got " + std::to_string(dims.size()));
  }
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] < 0) {
      throw std::invalid_argument("[shape] extents must be >= 0, got " + std::to_string(dims[i]));
    }
    if (dims[i] != 0 && elements_ > kMaxElements / dims[i]) {
      throw std::invalid_argument("[shape] element count must be at most 2^40");
    }
    elements_ *= dims[i];
    dims_[i] = dims[i];
  }
}

Shape Shape::with_extent(int dimension, std::int64_t extent) const {
  auto dims = dims_;
  dims[static_cast<std::size_t>(dimension)] = extent;
  return Shape(std::span<const std::int64_t>(dims.data(), static_cast<std::size_t>(rank_)));
}

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (int i = 0; i < shape.rank(); ++i) {
    if (i != 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

}  // namespace rematch
