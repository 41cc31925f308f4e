#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "properties/hunt/finding.h"
#include "properties/record/subject.h"

namespace rematch::cli {

/// A violation as reported: the smallest case, its file, and how to replay it.
struct Report {
  Violation violation;
  Case smallest;
  /// Number of cases that shrink to this one.
  std::uint64_t count = 1;
  std::filesystem::path file;
  /// Why the file cannot be written; empty if it can.
  std::string unwritable;
  /// The case is a saved case, so the file exists already.
  bool saved = false;
  /// Command lines that run the case again: from its file, and as it was found (empty for a saved
  /// case).
  std::string again;
  std::string unshrunk;
  Versions versions;
};

/// "rematch-engine-R1-dropout-masks-seed1-case0-1f2e3d4c.json": subject, law, seed and case, and a
/// hash of the text, so that a name stands for one content and no hunt overwrites what another one
/// found.
std::string file_name(const std::string& subject, const Finding& finding, std::uint64_t seed);

/// The violation, the case in words and the lines to paste.
std::string text_of(const Report& report);
nlohmann::ordered_json json_of(const Report& report);

/// Creates the report's file, still empty. If that fails, sets `unwritable`, and `again` to a
/// command that needs no file.
void reserve_file(Report& report);
/// Writes the case into its file. On failure, prints the reason to stderr and, if `text`, the case
/// to stdout.
void save(const Report& report, bool text);

/// "python 3.11.2, torch 2.15.0".
std::string text_of(const Versions& versions);

/// Letters, digits, dots and underscores as they are, runs of anything else as one hyphen.
std::string plain_name(std::string_view text);

/// What an exported script says that it shows.
std::string text_for_script(const Violation& violation);

/// What the law states, as one sentence.
std::string statement_of(std::string_view law);

}  // namespace rematch::cli
