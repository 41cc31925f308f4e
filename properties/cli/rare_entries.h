#pragma once

#include <string>
#include <vector>

#include "properties/hunt/hunt_options.h"

namespace rematch::cli {

/// Judges the case that lies beside the profile for an entry of `unseen`, if there is one, and
/// takes the entry off where the case still shows it: hunts show some entries in one of a thousand
/// cases.
void forget_shown(const HuntOptions& o, std::vector<std::string>& unseen);

}  // namespace rematch::cli
