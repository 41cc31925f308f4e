#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "properties/case/case.h"

namespace rematch {

inline constexpr std::size_t kMaxCaseTextBytes = std::size_t{4} << 20;
inline constexpr int kMaxCaseTextNesting = 256;

/// The case as JSON text that ends in a newline: one line per layer and segment, fields that have
/// their default left out. A seed above 2^53 is written as a string of decimal digits, because
/// other readers of JSON would round it. case_from_json() gives back an equal case. `found_with` is
/// written beside the case, as `found_with`, where it is not empty: what a violation was found
/// with.
std::string to_json(const Case& c, const Options& found_with = {});

/// Reads what to_json() writes and checks it with validate(). The text may come from anywhere: it
/// is limited to kMaxCaseTextBytes and kMaxCaseTextNesting, and every fault of it (not JSON, an
/// unknown format or field, a field given twice, a wrong type, a value out of range, an invalid
/// case) throws std::invalid_argument with the place, what was expected and what came:
/// "[case] layers[3].kernel: expected an integer, got 2.5". Sets `found_with` to what the text says
/// of it, or to nothing.
Case case_from_json(std::string_view text, Options* found_with = nullptr);

}  // namespace rematch
