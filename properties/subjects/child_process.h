#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace rematch {

/// A process died, gave no answer in time, or wrote something that is no line. The message says
/// which, and ends in the last lines that the process printed.
class ProcessFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// `text` as one word of a shell's command line.
std::string shell_word(const std::string& text);

/// A command of the shell with two pipes: it reads lines from descriptor 3 and answers each with a
/// line on descriptor 4. It has no stdin; what it prints to stdout and stderr is collected. It runs
/// in a process group of its own, so that Ctrl-C does not reach it, and that all of it is ended.
class ChildProcess {
 public:
  using Seconds = std::chrono::duration<double>;
  enum class WhenStopped : std::uint8_t { interrupt, end };

  /// Throws std::runtime_error when no process can be made. A command that does not exist is seen
  /// at the first exchange().
  explicit ChildProcess(const std::string& command);
  /// Ends the process: by the end of its requests, and by SIGKILL when that takes too long.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  /// Writes `request`, a line without its newline, and waits for the answer, which is valid until
  /// the next call. `what` names the request in messages. After a ProcessFailure the process is
  /// gone. When `stop` is set, the process is sent SIGINT, once in its life, and the answer is
  /// waited for all the same; or the process is ended.
  std::string_view exchange(std::string_view request, Seconds limit, std::string_view what,
                            const std::atomic<bool>* stop = nullptr,
                            WhenStopped when_stopped = WhenStopped::interrupt);

  /// Ends the process at once.
  void end() noexcept { kill_group(); }

  /// `what`, and the last lines that the process printed.
  std::string with_printed(const std::string& what);

 private:
  [[noreturn]] void fail(const std::string& what_happened);
  void write_some(std::string_view& rest);
  bool read_answer();
  void read_log();
  std::string ending();
  std::string last_lines() const;
  void kill_group() noexcept;
  void close_all() noexcept;

  pid_t pid_ = -1;
  bool is_interrupted_ = false;
  int requests_ = -1;
  int answers_ = -1;
  int log_ = -1;
  std::string answer_;
  std::string printed_;
};

}  // namespace rematch
