#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rematch {

/// The name that `text` was probably meant to be: the one with the fewest characters inserted,
/// left out, replaced or swapped with their neighbour. Empty when even that one differs in more
/// than about a third of the characters.
std::string nearest(std::string_view text, const std::vector<std::string>& names);

/// "; did you mean pytorch?", or nothing when no name is near.
std::string did_you_mean(std::string_view text, const std::vector<std::string>& names);

}  // namespace rematch
