#include "properties/hunt/regressions.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>
#include <system_error>

#include "properties/case/features.h"
#include "properties/case/json.h"

namespace rematch {

namespace fs = std::filesystem;

std::vector<fs::path> regression_files(const fs::path& directory) {
  std::error_code error;
  if (!fs::is_directory(directory, error)) {
    throw std::invalid_argument(
        fmt::format("expected a directory of case files, got '{}'", directory.string()));
  }
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::optional<fs::path> default_regressions(const fs::path& executable) {
  const fs::path bin = executable.parent_path();
  for (const char* place : {"../share/rematch/regressions", "../../../properties/regressions"}) {
    std::error_code error;
    const fs::path directory = (bin / place).lexically_normal();
    if (fs::is_directory(directory, error)) return directory;
  }
  return std::nullopt;
}

std::string lacking(const Scope& scope, const Case& c) {
  std::string names;
  // A subject that declares an option implements all that it brings.
  Case plain = c;
  plain.options.clear();
  features_of(plain, validate(plain)).without(scope.features).for_each([&](Feature feature) {
    names += " " + std::string(to_string(feature));
  });
  for (const LayerSpec& l : c.layers) {
    const auto& known = scope.custom;
    if (l.layer == nullptr || std::find(known.begin(), known.end(), l.layer) != known.end())
      continue;
    names += " " + l.layer->declaration;
  }
  for (const auto& [name, value] : c.options) {
    const OptionSpec* const spec = find_option(scope.options, name);
    if (spec == nullptr || !has_value(*spec, value)) names += " " + name + " = " + value;
  }
  return names;
}

Case load_case(const fs::path& file, Options* found_with) {
  std::error_code error;
  if (fs::is_directory(file, error)) {
    throw std::invalid_argument(
        fmt::format("{}: expected a case file, got a directory", file.string()));
  }
  errno = 0;
  std::ifstream in(file, std::ios::binary);
  if (!in) {
    throw std::invalid_argument(
        fmt::format("{}: expected a case file, got none that can be read: {}", file.string(),
                    std::strerror(errno)));
  }
  // One byte more than the reader takes is enough for it to say that there is too much.
  std::string text(kMaxCaseTextBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  try {
    return case_from_json(text, found_with);
  } catch (const std::invalid_argument& fault) {
    throw std::invalid_argument(fmt::format("{}: {}", file.string(), fault.what()));
  }
}

void save_case(const Case& c, const fs::path& file, const Options& found_with) {
  const fs::path draft = file.string() + fmt::format(".{}.tmp", getpid());
  errno = 0;
  std::ofstream out(draft, std::ios::binary);
  out << to_json(c, found_with);
  out.close();
  const int failure = errno;
  std::error_code error;
  if (out) fs::rename(draft, file, error);
  if (!out || error) {
    std::error_code ignored;
    fs::remove(draft, ignored);
    const std::string why = error ? error.message() : std::strerror(failure);
    throw std::runtime_error(
        fmt::format("cannot write the case file '{}': {}", file.string(), why));
  }
}

}  // namespace rematch
