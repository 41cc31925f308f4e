#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace rematch::testing {

/// The output and status that a command line left.
struct Outcome {
  int status = -1;
  std::string out;  ///< stdout, then stderr, unless the line says otherwise.
};

/// Runs a command line in `folder`.
Outcome run_line(const std::string& line,
                 const std::filesystem::path& folder = std::filesystem::temp_directory_path());

/// Runs a program and sends it SIGINT once it has a handler of its own for that signal and has
/// computed for a tenth of a second, however long that takes it. The first of `command` is the
/// program's path.
Outcome run_interrupted(std::vector<std::string> command);

/// An empty folder that is removed with everything in it.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  /// Writes a file, making its folders, and returns its path.
  std::string write(const std::string& name, const std::string& text) const;

 private:
  std::filesystem::path path_;
};

std::string text_of(const std::filesystem::path& file);

bool contains(std::string_view text, std::string_view part);

}  // namespace rematch::testing
