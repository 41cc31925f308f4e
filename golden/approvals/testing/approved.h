#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace rematch::golden {

using Json = nlohmann::ordered_json;

inline constexpr int kApprovedFormat = 1;

/// Compares entries, an object, with the approved file golden/NAME.json. Equal: returns "" and
/// removes golden/NAME.received.json. Else it writes that file, which golden/approve puts in the
/// place of the approved one, and returns what differs: at most 30 lines ("cifar/sqrt/float32/cpu:
/// layer_runs: was 29, is 30"), and what to do.
std::string difference_from_approved(const std::string& name, const Json& entries);
/// The same in another folder.
std::string difference_from_approved(const std::string& folder, const std::string& name,
                                     const Json& entries);

}  // namespace rematch::golden
