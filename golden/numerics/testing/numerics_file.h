#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "properties/case/case.h"
#include "properties/record/record.h"

namespace rematch::golden {

/// One line of golden/numerics/numerics.json.
struct Entry {
  std::string name;
  Case c;
  /// No operation of the case rounds, so every implementation computes the same bits.
  bool exact = false;
  /// PyTorch's plain run of the case, in the case's dtype.
  Record torch;
};

inline constexpr int kNumericsFormat = 2;

/// Parses the text of golden/numerics/numerics.json. Throws std::runtime_error that says how to
/// write the file again when its format is not kNumericsFormat, or a member is missing or wrong.
std::vector<Entry> parse_numerics(std::string_view text);

/// The entries of the file in the source tree.
std::vector<Entry> read_numerics();

/// The text of a numerics file, which may be older, with the records of PyTorch as it is installed.
/// Throws what the subject throws, and std::runtime_error for a case that it does not implement.
std::string recorded(std::string_view text);

/// The path of the file in the source tree.
std::string numerics_path();

}  // namespace rematch::golden
