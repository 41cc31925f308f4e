#pragma once

#include <span>
#include <vector>

#include "engine/checkpoint/checkpoint.h"

namespace rematch::scenarios {

/// Counts how often each of some functions runs, and in which order.
struct RunCount {
  std::vector<int> runs;
  std::vector<int> order;

  int total() const { return static_cast<int>(order.size()); }
};

/// `functions`, each telling `count` of every run before it begins. `count` must outlive them; it
/// starts at zero.
std::vector<Function> counting(std::span<const Function> functions, RunCount& count);

}  // namespace rematch::scenarios
