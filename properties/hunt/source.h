#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "properties/case/case.h"
#include "properties/case/geometry.h"

namespace rematch {

/// By layer, whether it is one of those that KnownDivergence::at names, and lies where
/// KnownDivergence::in says. `geometry` is validate(c).
std::vector<bool> sites_of(const std::vector<std::string>& at, const std::vector<std::string>& in,
                           const Case& c, const Geometry& geometry);

/// Whether KnownDivergence::in may hold the text.
bool is_segment_text(std::string_view text);

}  // namespace rematch
