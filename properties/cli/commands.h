#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "properties/case/case.h"
#include "properties/cli/options.h"
#include "properties/generate/mix.h"
#include "properties/hunt/profile.h"
#include "properties/hunt/registry.h"
#include "properties/laws/law.h"
#include "properties/record/subject.h"
#include "properties/subjects/child_process.h"
#include "properties/subjects/process_subject.h"

namespace rematch::cli {

/// A command of the program. NAME_command.cpp defines it, and commands.cpp lists it.
struct CommandEntry {
  std::string_view name;
  std::string_view summary;   ///< One line for `rematch --help`.
  std::string_view examples;  ///< Lines to paste, each beginning with "rematch".
  /// Declares the arguments, and what runs when the user chooses the command.
  void (*declare)(Command& command);
  /// Started by the program itself, so left out of the help.
  bool internal = false;
};
std::span<const CommandEntry* const> commands();

/// From now on an interrupt sets the flag that this returns; a second one ends the program, unless
/// that is left to whoever started it.
const std::atomic<bool>& stop_on_interrupt(bool second_ends = true);
inline constexpr unsigned kMaxJobs = 1024;
/// Processes that share a device unless more are asked for: each takes hundreds of megabytes of it,
/// and an MPS server has room for a few dozen.
inline constexpr unsigned kUsualWorkers = 16;
/// `--jobs`: empty for as many as there are cores, and at most `usual`.
int parse_jobs(const std::string& text, unsigned usual = kMaxJobs);
/// Before so many threads are started: says why they will be slow, where memory is limited.
void prepare_threads(int jobs, bool quiet = false);

/// The bytes of a file. Throws UsageError when it cannot be read.
std::string text_in(const std::filesystem::path& file);
/// Writes a file. Throws UsageError, which begins with the option that named it, if one did.
void write_text(const std::filesystem::path& file, const std::string& text,
                std::string_view option = "");

/// The path of the running program.
std::filesystem::path executable();

/// A command line that runs this program again under the name that the caller used, so that it can
/// be pasted.
std::string again(const std::string& arguments);
/// What the caller named the program: argv[0].
void set_program_name(const std::string& name);

/// Throws UsageError that lists the known names.
Mix parse_mix(std::string_view name);

/// The laws to judge by, as named on the command line.
struct LawChoice {
  std::vector<std::string> named;
  std::vector<std::string> without;

  void add_options(Command& command);
  /// Throws UsageError that lists the laws, or when none is left.
  LawSet chosen() const;
  /// The laws about failures, except those excluded by name; they are always judged.
  LawSet failures() const;
  /// The options that select the same laws again, each preceded by a space.
  std::string options() const;
};

/// A whole number below 2^64. Throws UsageError that names `option`; `or_else` completes what was
/// expected.
std::uint64_t parse_whole(std::string_view option, const std::string& text, std::uint64_t least,
                          std::string_view or_else = "");

/// The implementation under test, as named on the command line.
struct SubjectChoice {
  std::string name = default_subject();
  std::string device = "cpu";
  std::string limit;
  std::string python;
  std::string profile;
  /// Whether the command line says which subject, and which device.
  bool named = false;
  bool placed = false;

  /// Returns the option that names the subject.
  Option add_options(Command& command);
  /// --profile, for commands that judge.
  void add_profile(Command& command);
  /// The known bugs and documented limits of the subject; the engine has none. `declared`: the
  /// profile that the subject itself names. Throws std::invalid_argument for a file that is no
  /// profile, and UsageError where --profile names none.
  Profile known(const std::string& declared = "") const;
  /// Whether only the subject can say which profile it has, when it has been started.
  bool names_profile() const;
  ProcessLimits limits() const;
  /// Throws UsageError that says what there is.
  std::unique_ptr<Subject> make() const;
  /// The options that select the same subject again, each preceded by a space; empty for the
  /// default.
  std::string options() const;
  /// The same for the file of a case, the subject always among them.
  Options words() const;
  /// Takes what words() of an earlier command were, unless this one names a subject, and apart from
  /// what else it names. Throws UsageError for words that would start a command of the file's own.
  void take(const Options& words, const std::string& file);
};

/// A case named on the command line: a file, or a seed and a number of a mix.
struct CaseChoice {
  std::string file;
  std::string seed;
  std::string number;
  /// Empty: the wide mix.
  std::string mix;

  void add_options(Command& command);
  /// Throws UsageError where no case is named, or two: before a subject is started, which takes
  /// long.
  void require() const;
  /// `within`: what the subject implements. A number of a hunt means the case that the hunt of such
  /// a subject has. Throws UsageError for a file with other features.
  Case load(const Scope& scope) const;
  /// What its file says that it was found with; empty where it says nothing, or there is none.
  Options found_with() const;
  std::string name() const;
  /// The arguments that select the same case again.
  std::string options() const;
};

}  // namespace rematch::cli
