#include "properties/cli/program.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "engine/build/build_info.h"
#include "properties/case/nearest.h"
#include "properties/cli/commands.h"
#include "properties/hunt/frameworks.h"
#include "properties/output/terminal.h"
#include "properties/record/machine.h"

namespace rematch::cli {
namespace {

constexpr std::string_view kFooter =
    R"(Exit status:
  0    nothing new was found; known bugs and documented limits may have been seen
  1    a law was violated, no law had anything to judge, or a fault was not caught
  2    wrong usage, bad input, a budget or memory too small, or a device lost without a case to blame
  130  interrupted

Start here:
  rematch check --subject pytorch --cases 300    look for bugs in PyTorch's checkpointing
  rematch laws                                   list what is checked
  rematch COMMAND --help                         show the options and examples of a command)";

constexpr std::string_view kPrefix = "rematch-";

bool is_program(const std::filesystem::path& file) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(file, ignored) && ::access(file.c_str(), X_OK) == 0;
}

/// Becomes the program: `words`, followed by the arguments from the second on.
[[noreturn]] void become(std::vector<std::string> words, int argc, char** argv) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  for (int i = 2; i < argc; ++i) arguments.push_back(argv[i]);
  arguments.push_back(nullptr);
  ::execv(words.front().c_str(), arguments.data());
  throw UsageError(fmt::format("cannot run {}: {}", words.front(), std::strerror(errno)));
}

/// As git does: `rematch NAME ...` is the program rematch-NAME beside this one. Other commands are
/// those of the Python package. Returns only when there is none.
void try_external(int argc, char** argv) {
  const std::string name = argv[1];
  if (name.find('/') == std::string::npos) {
    const auto program = executable().parent_path() / (std::string(kPrefix) + name);
    if (is_program(program)) become({program.string()}, argc, argv);
  }
  if (const std::optional<std::string> command = python_command(name)) {
    become({"/bin/sh", "-c", *command, "rematch"}, argc, argv);
  }
}

bool is_ours(std::string_view name) {
  return std::any_of(commands().begin(), commands().end(),
                     [&](const CommandEntry* command) { return command->name == name; });
}

/// The programs beside this one that are called like commands, and the commands in Python.
std::vector<std::string> externals() {
  std::vector<std::string> names = commands_in_python();
  std::error_code error;
  const std::filesystem::path folder = executable().parent_path();
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kPrefix) && is_program(entry.path())) {
      names.push_back(name.substr(kPrefix.size()));
    }
  }
  std::erase_if(names, is_ours);
  std::sort(names.begin(), names.end());
  return names;
}

/// Commands and programs, as the help lists them.
std::vector<std::string> known_commands() {
  std::vector<std::string> names;
  for (const CommandEntry* command : commands()) {
    if (!command->internal) names.emplace_back(command->name);
  }
  for (const std::string& name : externals()) names.push_back(name);
  return names;
}

std::string footer() {
  std::string text;
  if (const std::vector<std::string> names = externals(); !names.empty()) {
    text = fmt::format("Further programs: rematch {}\n\n", fmt::join(names, ", rematch "));
  }
  return text + std::string(kFooter);
}

void add_commands(CLI::App& app, Action& chosen) {
  for (const CommandEntry* entry : commands()) {
    CLI::App* added = app.add_subcommand(std::string(entry->name), std::string(entry->summary));
    added->footer(entry->examples.empty() ? "" : fmt::format("Examples:\n{}", entry->examples));
    added->group(entry->internal ? "" : "Commands");
    Command command(*added, chosen);
    entry->declare(command);
  }
}

void check_first(const CLI::App& app, int argc, char** argv) {
  const std::string first = argv[1];
  if (first.starts_with('-')) {
    if (app.get_option_no_throw(first) != nullptr) return;
    throw UsageError(fmt::format("expected a command before {}; commands: {}", first,
                                 fmt::join(known_commands(), ", ")));
  }
  if (is_ours(first)) return;
  try_external(argc, argv);
  if (first == "scenario") {
    throw UsageError(
        "scenario is a program of its own, which is not here: `ci/build release rematch-scenario` "
        "makes it");
  }
  throw UsageError(fmt::format("no command is named \"{}\"{} (commands: {})", first,
                               did_you_mean(first, known_commands()),
                               fmt::join(known_commands(), ", ")));
}

int run(int argc, char** argv) {
  if (argc > 0) set_program_name(argv[0]);
  const std::string name =
      argc > 0 ? std::filesystem::path(argv[0]).filename().string() : "rematch";
  CLI::App app{"Conformance and regression harness for activation checkpointing.", name};
  app.require_subcommand(1);
  app.set_version_flag("--version", fmt::format("rematch {}, {}", REMATCH_VERSION, build_kind()));
  format_help(app);
  app.footer(footer());
  Action chosen;
  add_commands(app, chosen);
  if (argc < 2) {
    print_error(app.help());
    return kUsage;
  }
  check_first(app, argc, argv);
  if (const std::optional<int> status = parse(app, argc, argv)) return *status;
  return chosen();
}

const std::terminate_handler kUsualEnd = std::get_terminate();

/// Whether an allocation failed in this thread.
thread_local bool memory_ran_out = false;

[[noreturn]] void fail_allocation() {
  memory_ran_out = true;
  throw std::bad_alloc();
}

/// Destructors of JSON values allocate: where memory runs out, the way out of the error may need
/// more, and finds none. g++ 12 ends an inlined noexcept function without making the exception the
/// current one, so that the allocation itself has to leave a word.
[[noreturn]] void end_without_memory() {
  try {
    if (const std::exception_ptr error = std::current_exception()) std::rethrow_exception(error);
    if (memory_ran_out) throw std::bad_alloc();
  } catch (const std::bad_alloc&) {
    constexpr std::string_view kText = "rematch: memory ran out\n";
    std::fflush(stdout);
    (void)!::write(STDERR_FILENO, kText.data(), kText.size());
    std::_Exit(kUsage);
  } catch (...) {
    // What else ends the program is told as usual.
  }
  kUsualEnd();
  std::abort();
}

}  // namespace

int run_program(int argc, char** argv) {
  std::set_terminate(end_without_memory);
  std::set_new_handler(fail_allocation);
  try {
    // The reader of a pipe may close it early: findings are saved all the same.
    std::signal(SIGPIPE, SIG_IGN);
    require_cpu();
    const int status = run(argc, argv);
    if (!print_failed()) return status;
    print_error("rematch: standard output could not be written\n");
    // A violation stays one, whether it could be printed or not.
    return status == kHeld ? kUsage : status;
  } catch (const std::exception& e) {
    print_error(fmt::format("rematch: {}\n", describe(e)));
    return kUsage;
  }
}

}  // namespace rematch::cli
