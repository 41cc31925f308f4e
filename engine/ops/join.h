#pragma once

#include <array>

#include "engine/tensor/tensor.h"

namespace rematch {

/// a and b side by side along a dimension; all other extents must agree. Saves nothing.
Tensor concat(const Tensor& a, const Tensor& b, int dimension = 1);

/// The first `first` slices along a dimension, and the rest, as copies made by one node with two
/// outputs. 1 <= first < extent. Saves nothing.
std::array<Tensor, 2> split(const Tensor& x, std::int64_t first, int dimension = 1);

}  // namespace rematch
