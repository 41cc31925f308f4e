#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "properties/record/record.h"

namespace rematch {

inline constexpr int kRecordFormat = 1;
inline constexpr std::size_t kMaxRecordTextBytes = std::size_t{1} << 28;

/// The record as one line of JSON, without a newline. Fields that have their default are left out,
/// arrays travel as base64 of their little-endian bytes, and numbers above 2^53 as "0x" and hex
/// digits, for other readers of JSON would round them. record_from_json() gives back an equal
/// record.
std::string to_json(const Record& record);

/// Reads what to_json() writes. The text may come from anywhere: every fault of it (not JSON, too
/// much of it, an unknown format or field, a wrong type, a value out of range, an array whose bytes
/// do not fit its shape) throws std::invalid_argument with the place, what was expected and what
/// came: "[record] draws[3].elements: expected an integer, got 2.5".
void record_from_json(std::string_view text, Record& record);

}  // namespace rematch
