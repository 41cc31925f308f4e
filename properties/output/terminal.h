#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace rematch::cli {

// Exit statuses of every command.
/// Nothing new was found. Known bugs and documented limits may have been seen.
inline constexpr int kHeld = 0;
/// A law was violated, no law had anything to judge, or a fault was not caught.
inline constexpr int kBroken = 1;
/// Wrong usage, bad input, a budget or memory too small, or a device lost with no case to blame.
inline constexpr int kUsage = 2;
/// Interrupted by Ctrl-C or SIGTERM.
inline constexpr int kInterrupted = 130;

/// The caller's mistake: what was expected, what came, what to do. Ends in exit status 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// True when descriptor `fd` is a terminal that shows colour and NO_COLOR is unset or empty.
bool colour_wanted(int fd);

/// Columns of the terminal behind `fd`; COLUMNS, else 100, when it is no terminal.
int terminal_width(int fd);

/// Wraps text in colour, or leaves it alone.
class Paint {
 public:
  explicit Paint(bool on) : on_(on) {}
  std::string bold(std::string_view text) const { return wrap("1", text); }
  std::string dim(std::string_view text) const { return wrap("2", text); }
  std::string red(std::string_view text) const { return wrap("1;31", text); }
  std::string green(std::string_view text) const { return wrap("32", text); }
  std::string yellow(std::string_view text) const { return wrap("33", text); }
  std::string cyan(std::string_view text) const { return wrap("36", text); }

 private:
  std::string wrap(std::string_view code, std::string_view text) const;
  bool on_;
};

/// "12,345,678".
std::string grouped(std::int64_t number);

/// "1,234", and of what is not whole four significant digits, or all those before the point.
std::string number_text(double value);

/// A rate: "1,234", "7.5", and below 0.1 two digits that are not 0: "0.034".
std::string rate_text(double per_second);

/// "1 case", "1,234 cases".
std::string counted(std::uint64_t number, std::string_view noun);

/// "1,234 B", and from 10 KiB on "1.2 MiB (1,234,567 B)".
std::string bytes_text(std::int64_t bytes);

/// "0.8 s", "75 s", "12 min".
std::string seconds_text(double seconds);

/// Reads "60s", "5m", "1h" or "0.5s" as seconds. Throws UsageError that names the option for
/// anything else, and for durations that are not positive or above 30 days.
double parse_duration(std::string_view option, std::string_view text);

/// Code points of UTF-8 text, escape sequences left out: the columns it takes on a terminal.
int display_width(std::string_view text);

/// Pads `text` with blanks to `width` columns.
std::string padded(std::string_view text, int width, bool right = false);

/// Cuts plain text (no escape sequences) to `width` columns, the last one an ellipsis.
std::string cut(std::string_view text, int width);

/// The words of `text` in lines of at most `width` columns; a longer word has a line of its own.
std::vector<std::string> wrapped(std::string_view text, int width);

/// Rows of cells in aligned columns, two blanks apart, each line indented by two.
class Table {
 public:
  /// `right[i]`: column i is aligned to the right; missing entries mean left.
  /// `cut`: columns of plain text that give way where a terminal is too narrow for all, one after
  /// the other, each until it has eight characters.
  explicit Table(std::vector<bool> right, std::vector<std::size_t> cut = {})
      : right_(std::move(right)), cut_(std::move(cut)) {}
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  bool empty() const { return rows_.empty(); }
  /// As wide as the terminal, and in full where stdout is none.
  std::string text() const;
  std::string text(std::optional<int> width) const;

 private:
  void fit(std::vector<int>& widths, int width) const;

  std::vector<bool> right_;
  std::vector<std::size_t> cut_;
  std::vector<std::vector<std::string>> rows_;
};

/// When a log, which is no terminal, gets another line: 10 s after the start, then every 30 s.
class LogPace {
 public:
  using Time = std::chrono::steady_clock::time_point;
  explicit LogPace(Time start) : due_(start + std::chrono::seconds(10)) {}
  bool due(Time now) {
    if (now < due_) return false;
    due_ = now + std::chrono::seconds(30);
    return true;
  }

 private:
  Time due_;
};

/// A status line on stderr, from two seconds on: redrawn in place on a terminal; elsewhere, in a
/// log say, a line of its own after ten seconds and then every thirty.
class StatusLine {
 public:
  explicit StatusLine(bool quiet);
  ~StatusLine() { clear(); }
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;
  /// `fraction` in [0, 1] draws a bar before the text.
  void show(double seconds, std::optional<double> fraction, std::string_view text);
  void clear();

 private:
  bool on_;
  bool terminal_;
  bool drawn_ = false;
  LogPace pace_{std::chrono::steady_clock::now()};
};

/// Writes to stdout. A reader that went away (a closed pipe) is no error.
void print_out(std::string_view text);
/// Something that print_out() was given could not be written: the disk is full, say.
bool print_failed();
/// Writes to stderr.
void print_error(std::string_view text);

}  // namespace rematch::cli
