#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "properties/cli/commands.h"
#include "properties/output/terminal.h"

namespace rematch::cli {
namespace {

int list_laws(const LawChoice& choice, bool json) {
  const LawSet chosen = choice.chosen();
  if (json) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const Law& law : laws()) {
      if (!chosen[index_of(law)]) continue;
      nlohmann::ordered_json reads = nlohmann::ordered_json::array();
      law.reads.for_each([&](Observable o) { reads.push_back(to_string(o)); });
      list.push_back({{"name", law.name},
                      {"topic", to_string(law.topic)},
                      {"statement", law.statement},
                      {"harm", law.harm},
                      {"reads", reads}});
    }
    print_out(list.dump(2) + "\n");
    return kHeld;
  }
  const Paint paint(colour_wanted(1));
  for (const Law& law : laws()) {
    if (!chosen[index_of(law)]) continue;
    print_out(fmt::format("{}\n    {}\n    {}\n", paint.bold(law.name), law.statement,
                          paint.dim("If violated: ") + std::string(law.harm)));
  }
  return kHeld;
}

}  // namespace

const CommandEntry laws_command{
    .name = "laws",
    .summary = "List the laws: what each states, and the harm if it is violated",
    .examples =
        "  rematch laws\n"
        "  rematch laws dropout-masks\n"
        "  rematch laws --json",
    .declare =
        [](Command& command) {
          auto choice = std::make_shared<LawChoice>();
          auto json = std::make_shared<bool>(false);
          command.add("name", choice->named, "NAME", "These laws (default: all)");
          command.add_flag("--json", *json, "JSON instead of text");
          command.runs([choice, json] { return list_laws(*choice, *json); });
        },
};

}  // namespace rematch::cli
