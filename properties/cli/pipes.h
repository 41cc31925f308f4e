#pragma once

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "properties/output/terminal.h"

namespace rematch::cli {

/// The two pipes of a process that another rematch started: lines in, and a line for each out.
class Pipes {
 public:
  /// `command` is this one, and `starter` one that starts it.
  Pipes(const std::string& command, const std::string& starter)
      : requests_(fdopen(kRequests, "r")), answers_(fdopen(kAnswers, "w")) {
    if (requests_ == nullptr || answers_ == nullptr) {
      throw UsageError(command +
                       ": descriptors 3 and 4 are not open; it is started by another rematch: "
                       "rematch " +
                       starter);
    }
  }
  ~Pipes() {
    std::fclose(requests_);
    std::fclose(answers_);
    std::free(line_);
  }
  Pipes(const Pipes&) = delete;
  Pipes& operator=(const Pipes&) = delete;

  /// nullopt at the end.
  std::optional<std::string_view> request() {
    const ssize_t length = getline(&line_, &capacity_, requests_);
    if (length <= 0) return std::nullopt;
    return std::string_view(line_, static_cast<std::size_t>(length));
  }
  void answer(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), answers_);
    std::fputc('\n', answers_);
    std::fflush(answers_);
  }

 private:
  static constexpr int kRequests = 3;
  static constexpr int kAnswers = 4;

  std::FILE* requests_;
  std::FILE* answers_;
  char* line_ = nullptr;
  std::size_t capacity_ = 0;
};

}  // namespace rematch::cli
