#pragma once

#include <vector>

#include "properties/conform/page.h"

namespace rematch::conform {

/// Changes since an earlier page. A divergence that came or went counts only if chance does not
/// explain it, by how often it was seen.
std::vector<Change> changes_since(const Page& earlier, const Page& page);

}  // namespace rematch::conform
