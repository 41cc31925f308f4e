#pragma once

#include <compare>

namespace rematch {

/// Where something was compared: `index` is the number of the array, layer, parameter or random
/// stream, by the law. -1: the violation does not say, or it is about the whole run.
struct Site {
  int step = -1;
  int microbatch = -1;
  int index = -1;
  friend auto operator<=>(const Site&, const Site&) = default;
};

}  // namespace rematch
