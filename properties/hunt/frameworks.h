#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rematch {

/// A file or folder that comes with the program: `installed` below share/rematch of an installed
/// one, `in_sources` below properties/ for one in a build tree (<root>/build/<preset>/bin). nullopt
/// when there is neither.
std::optional<std::filesystem::path> beside_program(std::string_view installed,
                                                    std::string_view in_sources);

/// Frameworks that the harness knows: one folder each in properties/python/rematch/frameworks.
struct Frameworks {
  /// An adapter that can be judged, and the Python environment that it needs.
  struct Subject {
    std::string environment;
    /// Arguments of `python -m rematch`: "pytorch --variant reentrant".
    std::string arguments;
    /// What a user of the framework writes, with code in backticks: "`jax.checkpoint()` without
    /// `jit`". Not empty.
    std::string runs;
    /// Environment variables that its processes are started with.
    std::map<std::string, std::string> variables;
    /// Its framework's, where profiles are.
    std::filesystem::path folder;
  };
  /// Why the subjects of a framework do not show what laws read.
  struct Unobserved {
    std::string framework;
    /// Empty: all of the framework.
    std::vector<std::string> subjects;
    std::vector<std::string> laws;
    std::string why;
  };
  std::vector<Unobserved> unobserved;
  /// The first sentence about the law and the subject; empty where there is none.
  std::string why_unobserved(std::string_view subject, std::string_view law) const;
  /// By name: "pytorch", "pytorch:reentrant".
  std::map<std::string, Subject, std::less<>> subjects;
  /// The module that shows that Python has an environment, by its name: "torch" of "pytorch".
  std::map<std::string, std::string> modules;
};

/// Reads `framework.json` of each folder in `folder`. Throws std::invalid_argument with the file's
/// name, the place and what was expected there.
Frameworks load_frameworks(const std::filesystem::path& folder);

/// The frameworks that come with the program, read once; empty where there are none.
const Frameworks& known_frameworks();

/// The variable that chooses the Python of an environment: "REMATCH_PYTHON_MLX".
std::string python_variable(std::string_view environment);

/// The command that starts the adapter of a framework, by its name in known_frameworks(), or the
/// one of PyTorch with a checkpoint() function of the user's, "mine.py:my_checkpoint"; nullopt for
/// other names. Words behind the name are further arguments of the adapter: "pytorch --layers
/// layers.py:LAYERS". The Python is `python`, else that of python_variable(), else
/// $REMATCH_PYTHON, else the one that `ci/setup --frameworks` made, else `python3` of the PATH if
/// it has the framework. Throws std::invalid_argument that says what to do when there is none.
std::optional<std::string> framework_command(std::string_view name, const std::string& python = "");

/// The commands that are written in Python, sorted.
std::vector<std::string> commands_in_python();

/// The command for the shell that runs `python -m rematch WORD "$@"` with the Python of
/// framework_command(), where WORD is one of commands_in_python(), a framework, or a function of
/// the user's; nullopt for other words. Throws as that does.
std::optional<std::string> python_command(std::string_view word);

/// Advice where a process that could not be judged printed that Python lacks a module; empty where
/// it did not.
std::string advice_for(std::string_view name, std::string_view printed);

/// The profile that comes with the program for a subject of known_frameworks(): its own, or that of
/// the name before the colon; for a function of the user's that of PyTorch. nullopt for others.
std::optional<std::filesystem::path> framework_profile(std::string_view name);

}  // namespace rematch
