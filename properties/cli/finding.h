#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "properties/hunt/hunt.h"

namespace rematch::cli {

/// A violation as it is reported: the smallest case, where it lies, and how to see it again.
struct Report {
  Violation violation;
  Case smallest;
  /// Cases that came to this one.
  std::uint64_t count = 1;
  std::filesystem::path file;
  /// Why there is, and will be, no such file.
  std::string unwritable;
  /// The file is there already: a saved case.
  bool saved = false;
  /// Command lines that run the case again: from its file, and as it was found (empty for a saved
  /// case).
  std::string again;
  std::string unshrunk;
};

/// "rematch-engine-R1-dropout-masks-seed1-case0-1f2e3d4c.json": subject, law, seed and case, and a
/// hash of the text, so that a name stands for one content and no hunt overwrites what another one
/// found.
std::string file_name(const std::string& subject, const Finding& finding, std::uint64_t seed);

/// The violation, the case in words and the lines to paste.
std::string text_of(const Report& report);
nlohmann::ordered_json json_of(const Report& report);

/// Makes the report's file, still empty; where that fails, the report says so, and how to see the
/// case again without the file.
void reserve_file(Report& report);
/// Writes the case into its file. Says on stderr why it could not, and prints the case on stdout
/// instead if `text`.
void save(const Report& report, bool text);

/// What the law states, as one sentence.
std::string statement_of(std::string_view law);

}  // namespace rematch::cli
