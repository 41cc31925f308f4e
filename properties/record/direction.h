#pragma once

#include <cstdint>
#include <vector>

namespace rematch {

/// The arrays that a displaced run moves: parameter i of the model, or the input of forward
/// `microbatch` of the first step.
constexpr std::uint64_t direction_of_parameter(int parameter) {
  return 2 * static_cast<std::uint64_t>(parameter);
}
constexpr std::uint64_t direction_of_input(int microbatch) {
  return 2 * static_cast<std::uint64_t>(microbatch) + 1;
}

/// The direction in which a displaced run moves `array`: `elements` values in (-1, 1), a function
/// of the case's seed, so that a law can recompute what a subject did.
std::vector<double> direction(std::uint64_t seed, std::uint64_t array, std::int64_t elements);

}  // namespace rematch
