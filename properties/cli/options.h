#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace rematch::cli {

/// The action of a command after its arguments have been parsed; returns the exit status.
using Action = std::function<int()>;

/// An option of a command, as it was added.
class Option {
 public:
  explicit Option(CLI::Option& option) : option_(&option) {}
  /// Must name a folder that exists.
  Option& is_folder();
  /// Has an effect only beside `other`, and is refused without it.
  Option& needs(const Option& other);
  /// Is refused beside `other`.
  Option& excludes(const Option& other);
  /// Whether it stands on the command line that was parsed.
  bool given() const;

 private:
  CLI::Option* option_;
};

/// The arguments that a command accepts. CLI11 parses them; its header would cost every source that
/// includes it two seconds to compile, so only options.cpp and the programs include it.
///
/// `name`: "--option", or "argument" for one that is known by its place. `type` is the name of the
/// value in the help. The help shows the default, which is the value of the variable; the variable
/// must outlive parsing.
class Command {
 public:
  /// Parsing sets `chosen` if the user chose this command.
  Command(CLI::App& app, Action& chosen) : app_(&app), chosen_(&chosen) {}
  void runs(Action action);
  /// Called when all options have been parsed, before `runs`.
  void parsed(std::function<void()> action);

  Option add(const std::string& name, std::string& value, const std::string& type,
             const std::string& help);
  /// An option is given once for each value, an argument takes all that follow.
  Option add(const std::string& name, std::vector<std::string>& values, const std::string& type,
             const std::string& help);
  Option add_flag(const std::string& name, bool& value, const std::string& help);

 private:
  CLI::App* app_;
  Action* chosen_;
};

/// Makes `app`, and the commands that are added to it later, print help the way that ours reads.
void format_help(CLI::App& app);

/// Parses the command line. Returns the exit status where help or a version was asked for and
/// printed. Throws UsageError for a mistake, in one line: what was expected, what came, what to do.
std::optional<int> parse(CLI::App& app, int argc, char** argv);

}  // namespace rematch::cli
