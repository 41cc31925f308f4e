#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "properties/cli/commands.h"
#include "properties/hunt/hunt_options.h"
#include "properties/output/terminal.h"

namespace rematch::cli {

/// The arguments of `rematch check`.
struct CheckArguments {
  std::string cases;
  std::string duration;
  std::string seed = "1";
  std::string jobs;
  LawChoice laws;
  std::string mix = "wide";
  SubjectChoice subject;
  /// Empty: the current folder, and known bugs are not saved.
  std::string save;
  /// Folders of saved cases, beside the built-in one.
  std::vector<std::string> regressions;
  bool no_regressions = false;
  bool keep_going = false;
  std::string junit;
  bool json = false;
  bool quiet = false;
  bool verbose = false;

  std::filesystem::path save_folder() const { return save.empty() ? "." : save; }
};

/// The hunt that the arguments ask for, without its jobs and what watches it.
HuntOptions hunt_options(const CheckArguments& a);

/// Shows how far a hunt has come.
void show_progress(StatusLine& status, const HuntOptions& o, const HuntProgress& p,
                   std::string_view before = "");

/// The command that replays a case file.
std::string replay_line(const SubjectChoice& subject, const std::filesystem::path& file);
/// The command that replays a case of a hunt by its number.
std::string numbered_line(const CheckArguments& a, std::uint64_t seed, std::uint64_t index);

}  // namespace rematch::cli
