#pragma once

#include <cstdint>
#include <vector>

namespace rematch {

/// Numbers of the arrays that a displaced run moves: a parameter of the model, or a model input of
/// a microbatch of the first step (of at most 1,024).
constexpr std::uint64_t direction_of_parameter(int parameter) {
  return 2 * static_cast<std::uint64_t>(parameter);
}
constexpr std::uint64_t direction_of_input(int microbatch, int input) {
  return 2 * (1024 * static_cast<std::uint64_t>(input) + static_cast<std::uint64_t>(microbatch)) +
         1;
}

/// The direction in which a displaced run moves `array`: `elements` values in (-1, 1). It depends
/// only on the case's seed, so that a law can recompute it.
std::vector<double> direction(std::uint64_t seed, std::uint64_t array, std::int64_t elements);

}  // namespace rematch
