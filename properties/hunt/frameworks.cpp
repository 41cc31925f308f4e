#include "properties/hunt/frameworks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "properties/subjects/child_process.h"

namespace rematch {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kPyTorch = "pytorch";
/// What may follow the framework's name, and the option that it stands for.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kOptions{
    {{"reentrant", "--variant reentrant"},
     {"non_reentrant", "--variant non_reentrant"},
     {"fsdp", "--wrapper fsdp"},
     {"composable", "--wrapper composable"}}};

bool is_pytorch(std::string_view name) {
  return name == kPyTorch || name.starts_with(std::string(kPyTorch) + ":");
}

fs::path python_of(std::string_view framework) {
  const char* const chosen = std::getenv("REMATCH_PYTHON");
  if (chosen != nullptr && *chosen != '\0') return chosen;
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  const char* const home = std::getenv("HOME");
  const fs::path folder = cache != nullptr && *cache != '\0' ? fs::path(cache)
                          : home != nullptr                  ? fs::path(home) / ".cache"
                                                             : fs::path();
  const fs::path python = folder / "rematch" / "frameworks" / framework / "bin" / "python";
  std::error_code ignored;
  if (fs::exists(python, ignored)) return python;
  throw std::invalid_argument(fmt::format(
      "[subject] {0}: no Python with it was found at {1}; make one with `ci/setup --frameworks "
      "{0}`, or name yours in REMATCH_PYTHON",
      framework, python.string()));
}

}  // namespace

std::optional<fs::path> beside_program(std::string_view installed, std::string_view in_sources) {
  std::error_code error;
  const fs::path bin = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const fs::path& place :
       {bin / "../share/rematch" / installed, bin / "../../../properties" / in_sources}) {
    const fs::path found = place.lexically_normal();
    if (fs::exists(found, error)) return found;
  }
  return std::nullopt;
}

std::optional<std::string> framework_command(std::string_view name) {
  if (!is_pytorch(name)) return std::nullopt;
  std::string options;
  if (name != kPyTorch) {
    const std::string_view wanted = name.substr(kPyTorch.size() + 1);
    const auto* const found =
        std::find_if(kOptions.begin(), kOptions.end(),
                     [&](const auto& option) { return option.first == wanted; });
    if (found == kOptions.end()) {
      throw std::invalid_argument(
          fmt::format("[subject] pytorch, or pytorch: and reentrant, non_reentrant, fsdp or "
                      "composable expected, got \"{}\"",
                      name));
    }
    options = fmt::format(" {}", found->second);
  }
  const std::string python = shell_word(python_of(kPyTorch).string());
  const std::optional<fs::path> package = beside_program("python", "subjects/python/src");
  const std::string path = package ? fmt::format("PYTHONPATH={}${{PYTHONPATH:+:$PYTHONPATH}} ",
                                                 shell_word(package->string()))
                                   : std::string();
  return fmt::format("{}exec {} -m rematch pytorch{}", path, python, options);
}

std::optional<fs::path> framework_profile(std::string_view name) {
  if (!is_pytorch(name)) return std::nullopt;
  // The variant's own, where it has one.
  std::string own(name);
  std::replace(own.begin(), own.end(), ':', '_');
  for (const std::string& stem : {own, std::string(kPyTorch)}) {
    const std::string file = "profiles/" + stem + ".json";
    if (const auto found = beside_program(file, "subjects/" + file)) return found;
  }
  return std::nullopt;
}

}  // namespace rematch
