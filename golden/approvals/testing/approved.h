#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace rematch::golden {

using Json = nlohmann::ordered_json;

inline constexpr int kApprovedFormat = 1;

/// The differences between an approved file's entries and those of now, in words.
using InWords = std::vector<std::string> (*)(const Json& approved, const Json& now);

/// Compares entries, an object, with the approved file golden/NAME.json. Equal: returns "" and
/// removes golden/NAME.received.json. Else it writes that file, which golden/approve puts in the
/// place of the approved one, and returns what differs: at most 30 lines, and what to do.
std::string difference_from_approved(const std::string& name, const Json& entries, InWords words);
/// The same in another folder.
std::string difference_from_approved(const std::string& folder, const std::string& name,
                                     const Json& entries, InWords words);

/// For objects of counts by benchmark: "peak_bytes of cifar/sqrt/float32/cpu rose by 2,359,296 B,
/// from 68,611,412 B to 70,970,708 B; ...", with what the bytes of the peak are for.
std::vector<std::string> count_differences(const Json& approved, const Json& now);

/// For objects of any values: which entries are new, gone or others, and both values.
std::vector<std::string> entry_differences(const Json& approved, const Json& now);

}  // namespace rematch::golden
