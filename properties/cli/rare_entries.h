#pragma once

#include <string>
#include <vector>

#include "properties/hunt/hunt_options.h"

namespace rematch::cli {

/// Takes off `unseen`, and returns, what something else shows, since hunts show some entries in one
/// of a thousand cases: an entry whose example still shows it when it is judged, or that has no
/// example, but a script, which the tests of its framework run.
std::vector<std::string> take_shown(const HuntOptions& o, std::vector<std::string>& unseen);

}  // namespace rematch::cli
