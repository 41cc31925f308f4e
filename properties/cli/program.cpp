#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/build/build_info.h"
#include "properties/cli/commands.h"
#include "properties/cli/program.h"
#include "properties/output/terminal.h"
#include "properties/record/machine.h"

namespace rematch::cli {
namespace {

constexpr std::string_view kFooter =
    R"(Exit status: 0 all is well; 1 a law was violated, or no law had anything to judge (faults: a fault was not caught);
2 wrong usage, bad input, no memory left, or a device lost without a case to blame; 130 interrupted.
For any other NAME, `rematch NAME` runs the program rematch-NAME in the same directory. `rematch scenario` answers
questions that users asked about checkpointing.

Examples:
  rematch check --mix wide --cases 20000 --seed 1
  rematch check --for 60s --seed random
  rematch replay --seed 1 --case 42
  rematch show case.json --svg bytes.svg)";

/// As git does: `rematch NAME ...` is the program rematch-NAME beside this one. Returns only when
/// there is none.
void try_external(int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return;
  const std::string name = argv[1];
  if (name.find('/') != std::string::npos) return;
  const std::filesystem::path program = executable().parent_path() / ("rematch-" + name);
  if (::access(program.c_str(), X_OK) != 0) return;
  std::string first = program.string();
  std::vector<char*> arguments{first.data()};
  for (int i = 2; i < argc; ++i) arguments.push_back(argv[i]);
  arguments.push_back(nullptr);
  ::execv(program.c_str(), arguments.data());
  throw UsageError(fmt::format("cannot run {}: {}", program.string(), std::strerror(errno)));
}

/// Commands, and the programs beside this one that are called like commands.
std::string known_commands(const CLI::App& app) {
  std::string known;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    known += (known.empty() ? "" : ", ") + command->get_name();
  }
  constexpr std::string_view kPrefix = "rematch-";
  std::vector<std::string> programs;
  std::error_code error;
  const std::filesystem::path folder = executable().parent_path();
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const bool runs = name.starts_with(kPrefix) && ::access(entry.path().c_str(), X_OK) == 0;
    if (runs) programs.push_back(name.substr(kPrefix.size()));
  }
  std::sort(programs.begin(), programs.end());
  for (const std::string& name : programs) known += ", " + name;
  return known;
}

bool knows(const CLI::App& app, const std::string& name) {
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->check_name(name)) return true;
  }
  return false;
}

int run(int argc, char** argv) {
  if (argc > 0) set_program_name(argv[0]);
  const std::string name =
      argc > 0 ? std::filesystem::path(argv[0]).filename().string() : "rematch";
  CLI::App app{"Conformance and regression harness for activation checkpointing.", name};
  app.require_subcommand(1);
  app.set_version_flag("--version", fmt::format("rematch {}, {}", REMATCH_VERSION, build_kind()));
  app.footer(std::string(kFooter));
  Action chosen;
  Command commands(app, chosen);
  add_check(commands);
  add_merge(commands);
  add_conform(commands);
  add_replay(commands);
  add_show(commands);
  add_laws(commands);
  add_faults(commands);
  add_serve(commands);
  add_work(commands);
  if (argc >= 2 && argv[1][0] != '-' && !knows(app, argv[1])) {
    try_external(argc, argv);
    throw UsageError(fmt::format("no command \"{}\"; known: {}", argv[1], known_commands(app)));
  }
  if (argc < 2) {
    print_error(app.help());
    return kUsage;
  }
  const std::string first = argv[1];
  if (first[0] == '-' && app.get_option_no_throw(first) == nullptr) {
    throw UsageError(fmt::format("no option {} stands before a command; commands: {}", first,
                                 known_commands(app)));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? kHeld : kUsage;
  }
  return chosen();
}

}  // namespace

int run_program(int argc, char** argv) {
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
