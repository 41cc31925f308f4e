#include <fmt/format.h>

#include "engine/build/build_info.h"
#include "properties/cli/terminal.h"
#include "scenarios/scenario.h"

namespace rematch::scenarios {
namespace {

int run() {
  for (const Scenario& scenario : scenarios()) {
    cli::print_out(fmt::format("{}\n    {}\n", scenario.name, scenario.question));
  }
  return cli::kHeld;
}

}  // namespace
}  // namespace rematch::scenarios

int main() {
  try {
    rematch::require_cpu();
    return rematch::scenarios::run();
  } catch (const std::exception& e) {
    rematch::cli::print_error(fmt::format("rematch scenario: {}\n", e.what()));
    return rematch::cli::kUsage;
  }
}
