#pragma once

#include <string>
#include <vector>

#include "properties/conform/page.h"

namespace rematch::cli {

/// Makes the folders of a page. Throws UsageError.
void make_page_folders(const std::string& out);

/// Writes both forms of a page into the folder `out`; empty: nothing.
void write_page(const std::string& out, const conform::Page& page);

/// Adds a column, in the place of one of the same name.
void put(conform::Page& page, conform::Column column);

/// One page of all `files`, each a conform.json. The smallest cases, and the scripts that lie
/// beside the files, are written into the folder `out`, unless it is empty. Throws UsageError where
/// they have several seeds or mixes.
conform::Page page_from_files(const std::vector<std::string>& files, const std::string& out);

}  // namespace rematch::cli
