#include "properties/subjects/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

extern char** environ;

namespace rematch {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRequests = 3;
constexpr int kAnswers = 4;
/// Above those that the child is given, so that they do not get in each other's way.
constexpr int kFirstOwn = 10;
constexpr std::size_t kMostAnswer = std::size_t{1} << 28;
constexpr std::size_t kMostPrinted = std::size_t{16} << 10;
constexpr std::size_t kShownLines = 20;
/// A process that was told to end has so long.
constexpr std::chrono::milliseconds kGrace{2000};

std::runtime_error system_error(std::string_view what) {
  return std::runtime_error(fmt::format("[subject] {}: {}", what, std::strerror(errno)));
}

/// A pipe whose ends no other child inherits.
struct Pipe {
  int read = -1;
  int write = -1;

  Pipe() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) throw system_error("no pipe for the subject");
    read = fcntl(ends[0], F_DUPFD_CLOEXEC, kFirstOwn);
    write = fcntl(ends[1], F_DUPFD_CLOEXEC, kFirstOwn);
    ::close(ends[0]);
    ::close(ends[1]);
    if (read < 0 || write < 0) throw system_error("no pipe for the subject");
    // Most messages then take one turn. It is no matter if the system gives less.
    (void)fcntl(write, F_SETPIPE_SZ, 1 << 20);
  }
  ~Pipe() {
    if (read >= 0) ::close(read);
    if (write >= 0) ::close(write);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  static int taken(int& end) {
    const int fd = std::exchange(end, -1);
    (void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    return fd;
  }
};

struct FileActions {
  posix_spawn_file_actions_t actions;
  FileActions() { posix_spawn_file_actions_init(&actions); }
  ~FileActions() { posix_spawn_file_actions_destroy(&actions); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;
};

struct Attributes {
  posix_spawnattr_t attributes;
  Attributes() {
    posix_spawnattr_init(&attributes);
    sigset_t none;
    sigemptyset(&none);
    sigset_t all;
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(
        &attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~Attributes() { posix_spawnattr_destroy(&attributes); }
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;
};

/// A write to a process that has gone is an error, not a signal.
void ignore_broken_pipes() {
  static const bool done = [] {
    struct sigaction now {};
    sigaction(SIGPIPE, nullptr, &now);
    if (now.sa_handler == SIG_DFL) signal(SIGPIPE, SIG_IGN);
    return true;
  }();
  (void)done;
}

}  // namespace

std::string shell_word(const std::string& text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+./:=@%,";
  if (text.starts_with('-')) return shell_word("./" + text);
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

ChildProcess::ChildProcess(const std::string& command) {
  ignore_broken_pipes();
  Pipe requests;
  Pipe answers;
  Pipe log;
  FileActions files;
  posix_spawn_file_actions_addopen(&files.actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files.actions, log.write, 1);
  posix_spawn_file_actions_adddup2(&files.actions, log.write, 2);
  posix_spawn_file_actions_adddup2(&files.actions, requests.read, kRequests);
  posix_spawn_file_actions_adddup2(&files.actions, answers.write, kAnswers);
  const Attributes attributes;
  std::string line = command;
  std::string shell = "sh";
  std::string option = "-c";
  std::array<char*, 4> arguments{shell.data(), option.data(), line.data(), nullptr};
  errno = posix_spawn(&pid_, "/bin/sh", &files.actions, &attributes.attributes, arguments.data(),
                      environ);
  if (errno != 0) throw system_error("cannot start \"" + command + "\"");
  requests_ = Pipe::taken(requests.write);
  answers_ = Pipe::taken(answers.read);
  log_ = Pipe::taken(log.read);
}

ChildProcess::~ChildProcess() {
  if (pid_ < 0) return;
  ::close(std::exchange(requests_, -1));
  bool ended = false;
  for (const auto end = Clock::now() + kGrace; !ended && Clock::now() < end;) {
    // A process may print on its way out, and must not wait for room.
    read_log();
    ended = waitpid(pid_, nullptr, WNOHANG) != 0;
    if (!ended) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  // Processes that it started itself may be left in any case.
  kill_group();
  if (!ended) (void)waitpid(pid_, nullptr, 0);
  close_all();
}

std::string_view ChildProcess::exchange(std::string_view request, Seconds limit,
                                        std::string_view what, const std::atomic<bool>* stop,
                                        WhenStopped when_stopped) {
  if (pid_ < 0) throw ProcessFailure(fmt::format("{}: the process has ended", what));
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(limit);
  const std::string line = std::string(request) + '\n';
  std::string_view rest = line;
  answer_.clear();
  for (;;) {
    std::array<pollfd, 3> ready{pollfd{answers_, POLLIN, 0}, pollfd{log_, POLLIN, 0},
                                pollfd{rest.empty() ? -1 : requests_, POLLOUT, 0}};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0) {
      fail(fmt::format("{}: no answer within {:g} s", what, limit.count()));
    }
    if (stop != nullptr && stop->load()) {
      if (when_stopped == WhenStopped::end) fail(fmt::format("{}: interrupted", what));
      if (!std::exchange(is_interrupted_, true)) (void)kill(-pid_, SIGINT);
    }
    const long longest = stop == nullptr ? 3600000L : 100L;
    const int count = poll(ready.data(), ready.size(), static_cast<int>(std::min(left, longest)));
    if (count < 0 && errno != EINTR) fail(fmt::format("{}: {}", what, std::strerror(errno)));
    if (count <= 0) continue;
    if (ready[1].revents != 0) read_log();
    if (ready[0].revents != 0) {
      if (!read_answer()) fail(fmt::format("{}: {}", what, ending()));
      if (answer_.size() > kMostAnswer) {
        fail(fmt::format("{}: an answer of more than {} bytes", what, kMostAnswer));
      }
      if (answer_.ends_with('\n')) break;
    }
    if (ready[2].revents != 0) write_some(rest);
  }
  const std::size_t length = answer_.find('\n');
  if (length + 1 != answer_.size() || !rest.empty()) {
    fail(fmt::format("{}: one line expected as the answer, got more", what));
  }
  return std::string_view(answer_).substr(0, length);
}

void ChildProcess::write_some(std::string_view& rest) {
  const ssize_t written = write(requests_, rest.data(), rest.size());
  if (written > 0) rest.remove_prefix(static_cast<std::size_t>(written));
  // A process that no longer reads is told by the end of its answers.
  if (written < 0 && errno == EPIPE) rest = {};
}

bool ChildProcess::read_answer() {
  std::array<char, 1 << 16> block;
  const ssize_t n = read(answers_, block.data(), block.size());
  if (n > 0) answer_.append(block.data(), static_cast<std::size_t>(n));
  return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

void ChildProcess::read_log() {
  if (log_ < 0) return;
  std::array<char, 4096> block;
  ssize_t n = 0;
  while ((n = read(log_, block.data(), block.size())) > 0) {
    printed_.append(block.data(), static_cast<std::size_t>(n));
    if (printed_.size() > 2 * kMostPrinted) printed_.erase(0, printed_.size() - kMostPrinted);
  }
  if (n == 0) ::close(std::exchange(log_, -1));
}

std::string ChildProcess::ending() {
  int status = 0;
  // It closed its answers; it may take a moment to end.
  for (const auto end = Clock::now() + kGrace; Clock::now() < end;) {
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      const pid_t group = std::exchange(pid_, -1);
      (void)kill(-group, SIGKILL);
      if (WIFSIGNALED(status)) {
        const int number = WTERMSIG(status);
        return fmt::format("the process was killed by signal {} ({}{})", number, strsignal(number),
                           number == SIGKILL ? "; out of memory?" : "");
      }
      return fmt::format("the process ended with exit status {}", WEXITSTATUS(status));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return "the process closed descriptor 4";
}

void ChildProcess::fail(const std::string& what_happened) {
  kill_group();
  if (pid_ > 0) (void)waitpid(pid_, nullptr, 0);
  pid_ = -1;
  const std::string message = with_printed(what_happened);
  close_all();
  throw ProcessFailure(message);
}

std::string ChildProcess::with_printed(const std::string& what) {
  read_log();
  const std::string printed = last_lines();
  return printed.empty() ? what : what + "; it printed:\n" + printed;
}

std::string ChildProcess::last_lines() const {
  std::string_view text = printed_;
  while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  std::size_t begin = text.size();
  for (std::size_t lines = 0; lines < kShownLines && begin != 0; ++lines) {
    const std::size_t at = text.rfind('\n', begin - 1);
    begin = at == std::string_view::npos ? 0 : at;
  }
  if (begin != 0) ++begin;
  // Whatever came must not steer the terminal.
  std::string shown;
  for (const char c : text.substr(begin)) {
    const auto code = static_cast<unsigned char>(c);
    shown += code >= 0x20 || c == '\n' || c == '\t' ? c : '?';
  }
  return shown;
}

void ChildProcess::kill_group() noexcept {
  if (pid_ > 0) (void)kill(-pid_, SIGKILL);
}

void ChildProcess::close_all() noexcept {
  for (int* fd : {&requests_, &answers_, &log_}) {
    if (*fd >= 0) ::close(std::exchange(*fd, -1));
  }
}

}  // namespace rematch
