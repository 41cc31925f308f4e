#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace rematch {

/// A file or folder that comes with the program: `installed` below share/rematch of an installed
/// one, `in_sources` below properties/ for one in a build tree (<root>/build/<preset>/bin). nullopt
/// when there is neither.
std::optional<std::filesystem::path> beside_program(std::string_view installed,
                                                    std::string_view in_sources);

/// The command that starts the adapter of a framework: "pytorch", or "pytorch:reentrant" for one of
/// its variants. nullopt for other names. The framework's Python is $REMATCH_PYTHON, else the one
/// that `ci/setup --frameworks` made. Throws std::invalid_argument that says what to do when there
/// is none, or when the framework has no such variant.
std::optional<std::string> framework_command(std::string_view name);

/// The profile that comes with the program for a subject of framework_command(). nullopt for
/// others.
std::optional<std::filesystem::path> framework_profile(std::string_view name);

}  // namespace rematch
