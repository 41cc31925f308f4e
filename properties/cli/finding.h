#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "properties/cli/check_arguments.h"
#include "properties/hunt/finding.h"
#include "properties/record/subject.h"

namespace rematch::cli {

/// A violation as reported: the smallest case, its file, and how to replay it.
struct Report {
  Violation violation;
  Case smallest;
  /// Number of cases that shrink to this one.
  std::uint64_t count = 1;
  std::filesystem::path file = {};
  /// Why the file cannot be written; empty if it can.
  std::string unwritable = {};
  /// The file of the saved case in which it was found; empty if the hunt found it.
  std::filesystem::path saved_case = {};
  /// Command lines that run the case again: from its file, and as it was found (empty if that is
  /// the same).
  std::string again = {};
  std::string unshrunk = {};
  Versions versions = {};
  /// SubjectChoice::words(), for the file.
  Options found_with = {};

  /// Whether the file exists already.
  bool is_saved() const { return file == saved_case; }
};

/// Adds a report, or counts it with one of the same violation and the same case apart from its
/// seed.
void add_report(Report report, std::vector<Report>& reports);

/// "rematch-engine-R1-dropout-masks-seed1-case0-1f2e3d4c.json": subject, law, seed and case, and a
/// hash of the text, so that a name stands for one content and no hunt overwrites what another one
/// found.
std::string file_name(const std::string& subject, const Finding& finding, std::uint64_t seed);
/// As above, with the name of the saved case that it was found in: "...-saved-replay_draws-...".
std::string file_name(const std::string& subject, const Finding& finding,
                      const std::string& saved_case);
/// The file for the smallest case of a known bug.
std::filesystem::path known_file(const CheckArguments& a, const std::string& id);

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

/// Text of several lines, cut to the first few, with how many more there are.
std::string first_lines(std::string_view text, std::size_t most = 4);
/// Text of several lines, of which all but the first are indented.
std::string hanging(std::string_view text, int indent);
/// The first line of a text, with how many more there are.
std::string first_line(std::string_view text);

}  // namespace rematch::cli
