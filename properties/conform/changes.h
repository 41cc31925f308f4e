#pragma once

#include <string_view>
#include <vector>

#include "properties/conform/page.h"

namespace rematch::conform {

/// Changes since an earlier page, whose page_json() is `earlier`. A divergence that came
/// or went counts only if chance does not explain it, by how often it was seen. Throws
/// std::invalid_argument with the place where the text is no such page.
std::vector<Change> changes_since(std::string_view earlier, const Page& page);

}  // namespace rematch::conform
