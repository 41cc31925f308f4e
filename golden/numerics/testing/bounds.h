#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "golden/numerics/testing/numerics_file.h"

namespace rematch::golden {

/// How far one implementation's result may be from the exact one, element by element, by place in
/// an Entry. Two implementations may differ by twice that.
struct Bounds {
  double output = 0;
  std::map<std::string, double> gradients;
  std::map<std::string, double> after;
};

/// First-order rounding error bounds for an entry's op, from reduction lengths, largest magnitudes
/// and the unit roundoff, whatever the order of the sums. Throws std::runtime_error for an op that
/// has none.
Bounds bounds_of(const Entry& entry);

/// A length, to compute with.
inline double count(std::int64_t n) { return static_cast<double>(n); }

/// 2^-24 or 2^-53: the relative error of one rounding.
double unit_roundoff(DType dtype);

/// Largest magnitude of an element, 0 for none.
double largest(const Tensor& t);

}  // namespace rematch::golden
