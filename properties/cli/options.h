#pragma once

#include <functional>
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
  Option& required();
  /// Must name a folder that is there.
  Option& is_folder();
  /// Has an effect only beside `other`, and is refused without it.
  Option& needs(const Option& other);
  /// Is refused beside `other`.
  Option& excludes(const Option& other);

 private:
  CLI::Option* option_;
};

/// What a command accepts. CLI11 parses it; its header would cost every source that includes it two
/// seconds to compile, so that only this class does.
///
/// `name`: "--option", or "argument" for one that is known by its place. `type` is how the help
/// calls the value. The default, which help shows, is what the variable holds; it must outlive
/// parsing.
class Command {
 public:
  /// Parsing sets `chosen` if the user chose a command of `app`.
  Command(CLI::App& app, Action& chosen) : app_(&app), chosen_(&chosen) {}
  Command add_command(const std::string& name, const std::string& description);
  void runs(Action action);

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

}  // namespace rematch::cli
