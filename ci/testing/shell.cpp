#include "ci/testing/shell.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace rematch::testing {

namespace fs = std::filesystem;

Outcome run_line(const std::string& line, const fs::path& folder) {
  const std::string command = "cd '" + folder.string() + "' && { " + line + "\n} 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("no shell");
  Outcome outcome;
  std::array<char, 4096> buffer{};
  while (const std::size_t n = fread(buffer.data(), 1, buffer.size(), pipe)) {
    outcome.out.append(buffer.data(), n);
  }
  outcome.status = WEXITSTATUS(pclose(pipe));
  return outcome;
}

ScratchFolder::ScratchFolder() {
  static std::atomic<int> count{0};
  path_ = fs::temp_directory_path() /
          ("rematch test " + std::to_string(getpid()) + " " + std::to_string(count++));
  fs::create_directories(path_);
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::string ScratchFolder::write(const std::string& name, const std::string& text) const {
  const fs::path file = path_ / name;
  fs::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << text;
  return file.string();
}

std::string text_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace rematch::testing
