#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "properties/record/subject.h"
#include "properties/subjects/array_file.h"

namespace rematch {

/// The message of PROTOCOL.md that asks for a run, without a newline. `same_case`: the case, its
/// model and its arrays are those of the message before, and left out. Large arrays are put into
/// `files`, unless that is nullptr.
std::string run_message(std::uint64_t id, const Case& c, const Geometry& geometry,
                        const RunRequest& request, bool same_case, ArrayFile* files);

/// The message that asks for a script that shows `finding`.
std::string export_message(std::uint64_t id, const Case& c, const Geometry& geometry,
                           std::string_view finding, ArrayFile* files);

}  // namespace rematch
