#include "properties/cli/commands.h"

#include <array>

// In the order of `rematch --help`. Each is defined in NAME_command.cpp.
#define REMATCH_EACH_COMMAND(COMMAND) \
  COMMAND(check)                      \
  COMMAND(replay)                     \
  COMMAND(show)                       \
  COMMAND(laws)                       \
  COMMAND(subjects)                   \
  COMMAND(conform)                    \
  COMMAND(faults)                     \
  COMMAND(serve)                      \
  COMMAND(work)

namespace rematch::cli {

#define REMATCH_DECLARE(name) extern const CommandEntry name##_command;
REMATCH_EACH_COMMAND(REMATCH_DECLARE)
#undef REMATCH_DECLARE

std::span<const CommandEntry* const> commands() {
#define REMATCH_LIST(name) &name##_command,
  static constexpr std::array kCommands{REMATCH_EACH_COMMAND(REMATCH_LIST)};
#undef REMATCH_LIST
  return kCommands;
}

}  // namespace rematch::cli
