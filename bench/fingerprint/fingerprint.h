#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/memory/resource.h"

namespace rematch::bench {

/// Everything that decides times beside the program's own text, and which text it was: pairs of
/// name and value for the context of a result file.
std::vector<std::pair<std::string, std::string>> fingerprint(Device device, int threads);

}  // namespace rematch::bench
