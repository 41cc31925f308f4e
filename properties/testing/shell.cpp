#include "properties/testing/shell.h"

#include <fcntl.h>
#include <sched.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>

namespace rematch::testing {

namespace fs = std::filesystem;

namespace {

std::string read_all(FILE* pipe) {
  std::string text;
  std::array<char, 4096> buffer{};
  while (const std::size_t n = fread(buffer.data(), 1, buffer.size(), pipe)) {
    text.append(buffer.data(), n);
  }
  return text;
}

/// Whether another process, which may have ended, handles a signal. The kernel shows the set as one
/// hexadecimal number, bit s - 1 for signal s.
bool catches(pid_t process, int signal) {
  const std::string status = text_of("/proc/" + std::to_string(process) + "/status");
  const std::size_t at = status.find("SigCgt:");
  if (at == std::string::npos) return false;
  const unsigned long long caught = std::stoull(status.substr(at + 7), nullptr, 16);
  return (caught >> (signal - 1) & 1) != 0;
}

/// Whether it has computed for a tenth of a second, however long that took it. Behind the name in
/// parentheses, user time is the twelfth number, in clock ticks.
bool has_worked(pid_t process) {
  const std::string stat = text_of("/proc/" + std::to_string(process) + "/stat");
  const std::size_t name = stat.rfind(')');
  if (name == std::string::npos) return false;
  std::istringstream rest(stat.substr(name + 1));
  std::string field;
  for (int i = 0; i < 12; ++i) rest >> field;
  return !field.empty() && std::stol(field) * 10 >= sysconf(_SC_CLK_TCK);
}

bool has_ended(pid_t process) {
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(process), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
         info.si_pid == process;
}

}  // namespace

Outcome run_line(const std::string& line, const fs::path& folder) {
  const std::string command = "cd '" + folder.string() + "' && { " + line + "\n} 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("no shell");
  Outcome outcome;
  outcome.out = read_all(pipe);
  outcome.status = WEXITSTATUS(pclose(pipe));
  return outcome;
}

Outcome run_interrupted(std::vector<std::string> command) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  std::vector<char*> arguments;
  for (std::string& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t child = 0;
  // Returns when the program has taken the child's place, so that no handler of ours is left in it.
  const int error = posix_spawn(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  FILE* pipe = fdopen(ends[0], "r");
  if (error != 0) {
    fclose(pipe);
    throw std::runtime_error("cannot run " + command[0]);
  }
  while (!(catches(child, SIGINT) && has_worked(child)) && !has_ended(child)) sched_yield();
  kill(child, SIGINT);
  Outcome outcome;
  outcome.out = read_all(pipe);
  fclose(pipe);
  int status = 0;
  waitpid(child, &status, 0);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
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
