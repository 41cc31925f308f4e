#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/tensor/shape.h"
#include "properties/bounds/bounds.h"

namespace rematch::rounding {

using Var = Bounds::Var;
/// The elements of a tensor, in row-major order.
using Vars = std::vector<Var>;

inline std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

/// The product of the extents from dimension `first` on.
inline std::int64_t extent_from(const Shape& shape, int first) {
  std::int64_t product = 1;
  for (int i = first; i < shape.rank(); ++i) product *= shape[i];
  return product;
}

template <class Function>
Vars map(const Vars& x, const Function& function) {
  Vars y;
  y.reserve(x.size());
  for (const Var v : x) y.push_back(function(v));
  return y;
}

inline Var mean_of(Bounds& t, const Vars& x) {
  for (const Var v : x) t.plus(v, 1 / static_cast<double>(x.size()));
  return t.sum();
}

}  // namespace rematch::rounding
