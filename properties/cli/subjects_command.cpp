#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <nlohmann/json.hpp>

#include "properties/cli/commands.h"
#include "properties/hunt/frameworks.h"
#include "properties/output/terminal.h"

namespace rematch::cli {
namespace {

/// Why the subject cannot be started here; empty if it can.
std::string lacking_for(const std::string& name) {
  try {
    (void)framework_command(name);
    return {};
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
}

int list_json() {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const std::string& name : subject_names()) {
    const auto found = known_frameworks().subjects.find(name);
    const bool is_framework = found != known_frameworks().subjects.end();
    list.push_back({{"name", name},
                    {"environment",
                     is_framework ? nlohmann::ordered_json(found->second.environment) : nullptr},
                    {"set_up", lacking_for(name).empty()}});
  }
  print_out(list.dump(2) + "\n");
  return kHeld;
}

int list_text() {
  const Paint paint(colour_wanted(1));
  std::map<std::string, std::vector<std::string>> families;
  std::vector<std::string> order;
  for (const std::string& name : subject_names()) {
    const std::string family = name.substr(0, name.find(':'));
    if (!families.contains(family)) order.push_back(family);
    families[family].push_back(name);
  }
  const int width = terminal_width(1) - 4;
  for (const std::string& family : order) {
    const bool is_engine = family == "engine";
    const std::vector<std::string>& names = families[family];
    const bool is_here = lacking_for(names.front()).empty();
    print_out(fmt::format("{}{}\n", paint.bold(family),
                          is_engine
                              ? ", and with one fault each (`rematch faults` describes them)"
                              : (is_here ? "" : ", not set up: " + lacking_for(names.front()))));
    if (is_engine) {
      const std::string joined = fmt::format("{}", fmt::join(names, " "));
      for (const std::string& line : wrapped(joined, width)) print_out("    " + line + "\n");
      continue;
    }
    for (const std::string& name : names) {
      const auto found = known_frameworks().subjects.find(name);
      std::string runs = found == known_frameworks().subjects.end() ? "" : found->second.runs;
      std::erase(runs, '`');
      print_out(fmt::format("    {:26} {}\n", name, runs));
    }
  }
  print_out(
      "\nmine.py:FUNCTION is a checkpoint() function of your own for PyTorch, and a command in "
      "quotes any\nprogram that speaks the protocol.\n");
  return kHeld;
}

}  // namespace

const CommandEntry subjects_command{
    .name = "subjects",
    .summary = "List the implementations that can be tested",
    .examples =
        "  rematch subjects\n"
        "  rematch subjects --json",
    .declare =
        [](Command& command) {
          auto json = std::make_shared<bool>(false);
          command.add_flag("--json", *json, "JSON instead of text");
          command.runs([json] { return *json ? list_json() : list_text(); });
        },
};

}  // namespace rematch::cli
