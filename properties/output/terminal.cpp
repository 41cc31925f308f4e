#include "properties/output/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>

namespace rematch::cli {

bool colour_wanted(int fd) {
  const char* no_colour = std::getenv("NO_COLOR");
  if (no_colour != nullptr && *no_colour != '\0') return false;
  const char* term = std::getenv("TERM");
  if (term == nullptr || std::string_view(term) == "dumb") return false;
  return isatty(fd) == 1;
}

int terminal_width(int fd) {
  winsize size{};
  if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  if (const char* columns = std::getenv("COLUMNS")) {
    const int width = std::atoi(columns);
    if (width >= 40) return std::min(width, 400);
  }
  return 100;
}

std::string Paint::wrap(std::string_view code, std::string_view text) const {
  if (!on_ || text.empty()) return std::string(text);
  return fmt::format("\033[{}m{}\033[0m", code, text);
}

std::string grouped(std::int64_t number) {
  std::string digits = std::to_string(number);
  const int first = number < 0 ? 1 : 0;
  for (int at = static_cast<int>(digits.size()) - 3; at > first; at -= 3) {
    digits.insert(static_cast<std::size_t>(at), ",");
  }
  return digits;
}

std::string rate_text(double per_second) {
  if (per_second >= 10) return grouped(std::lround(per_second));
  return per_second >= 0.1 ? fmt::format("{:.1f}", per_second) : fmt::format("{:.2g}", per_second);
}

std::string counted(std::uint64_t number, std::string_view noun) {
  return fmt::format("{} {}{}", grouped(static_cast<std::int64_t>(number)), noun,
                     number == 1 ? "" : "s");
}

std::string bytes_text(std::int64_t bytes) {
  if (bytes < 10 * 1024) return grouped(bytes) + " B";
  static constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {} ({} B)", value, kUnits[unit], grouped(bytes));
}

std::string seconds_text(double seconds) {
  if (seconds < 10) return fmt::format("{:.1f} s", seconds);
  if (seconds < 600) return fmt::format("{:.0f} s", seconds);
  return fmt::format("{:.0f} min", seconds / 60);
}

double parse_duration(std::string_view option, std::string_view text) {
  constexpr double kMost = 30 * 24 * 3600.0;
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  const std::string_view unit(rest, static_cast<std::size_t>(end - rest));
  double scale = 0;
  if (unit == "s") scale = 1;
  if (unit == "m" || unit == "min") scale = 60;
  if (unit == "h") scale = 3600;
  if (error != std::errc() || !(value > 0) || !(value * scale > 0) || value * scale > kMost) {
    throw UsageError(fmt::format(
        "{}: expected a duration with its unit, such as 60s, 5m or 1h, of at most 720h, got '{}'",
        option, text));
  }
  return value * scale;
}

int display_width(std::string_view text) {
  int width = 0;
  bool escape = false;
  for (const char c : text) {
    if (escape) {
      escape = c != 'm';
    } else if (c == '\033') {
      escape = true;
    } else if ((static_cast<unsigned char>(c) & 0xC0U) != 0x80U) {
      ++width;
    }
  }
  return width;
}

std::string padded(std::string_view text, int width, bool right) {
  const int missing = std::max(0, width - display_width(text));
  const std::string blanks(static_cast<std::size_t>(missing), ' ');
  return right ? blanks + std::string(text) : std::string(text) + blanks;
}

std::string cut(std::string_view text, int width) {
  if (display_width(text) <= width) return std::string(text);
  int taken = 0;
  std::size_t end = 0;
  for (; end < text.size(); ++end) {
    if ((static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) continue;
    if (taken == std::max(0, width - 1)) break;
    ++taken;
  }
  return std::string(text.substr(0, end)) + "…";
}

std::string number_text(double value) {
  constexpr double kExact = 9e15;
  if (std::nearbyint(value) == value && std::abs(value) < kExact) {
    return grouped(static_cast<std::int64_t>(value));
  }
  constexpr double kFourDigits = 1000;
  if (std::abs(value) >= kFourDigits && std::abs(value) < kExact) {
    return grouped(static_cast<std::int64_t>(std::nearbyint(value)));
  }
  return fmt::format("{:.4g}", value);
}

std::vector<std::string> wrapped(std::string_view text, int width) {
  std::vector<std::string> lines(1);
  int used = 0;
  while (!text.empty()) {
    const std::size_t blank = text.find(' ');
    const std::string_view word = text.substr(0, blank);
    text.remove_prefix(blank == std::string_view::npos ? text.size() : blank + 1);
    if (word.empty()) continue;
    const int columns = display_width(word);
    if (used > 0 && used + 1 + columns > width) {
      lines.emplace_back();
      used = 0;
    }
    if (used > 0) lines.back() += ' ';
    lines.back() += word;
    used += (used > 0 ? 1 : 0) + columns;
  }
  return lines;
}

void Table::fit(std::vector<int>& widths, int width) const {
  constexpr int kLeast = 8;
  const int room = width - 2 * static_cast<int>(widths.size());
  int excess = std::accumulate(widths.begin(), widths.end(), 0) - room;
  for (const std::size_t i : cut_) {
    if (i >= widths.size()) continue;
    const int less = std::clamp(excess, 0, std::max(0, widths[i] - kLeast));
    widths[i] -= less;
    excess -= less;
  }
}

std::string Table::text() const {
  const bool is_terminal = isatty(STDOUT_FILENO) == 1;
  return text(is_terminal ? std::optional(terminal_width(STDOUT_FILENO)) : std::nullopt);
}

std::string Table::text(std::optional<int> width) const {
  std::vector<int> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], display_width(row[i]));
    }
  }
  if (width) fit(widths, *width);
  std::string out;
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const bool fits = display_width(row[i]) <= widths[i];
      line += "  " + padded(fits ? row[i] : cut(row[i], widths[i]), widths[i],
                            i < right_.size() && right_[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  }
  return out;
}

namespace {

constexpr double kQuietSeconds = 2;

}  // namespace

StatusLine::StatusLine(bool quiet) : on_(!quiet), terminal_(isatty(STDERR_FILENO) == 1) {}

void StatusLine::show(double seconds, std::optional<double> fraction, std::string_view text) {
  if (!on_) return;
  const double share = std::clamp(fraction.value_or(0), 0.0, 1.0);
  if (!terminal_) {
    // Not by `seconds`: what is shown may be one of many hunts.
    if (!pace_.due(std::chrono::steady_clock::now())) return;
    const std::string percent = fraction ? fmt::format("{:.0f} %, ", share * 100) : "";
    print_error(fmt::format("{}{}\n", percent, text));
    return;
  }
  if (seconds < kQuietSeconds) return;
  std::string line;
  if (fraction) {
    constexpr int kBar = 24;
    const int full = static_cast<int>(std::lround(share * kBar));
    for (int i = 0; i < kBar; ++i) line += i < full ? "█" : "░";
    line += fmt::format(" {:3.0f} %  ", share * 100);
  }
  line += text;
  line = cut(line, terminal_width(STDERR_FILENO) - 1);
  print_error("\r" + line + "\033[K");
  drawn_ = true;
}

void StatusLine::clear() {
  if (drawn_) print_error("\r\033[K");
  drawn_ = false;
}

namespace {

bool out_failed = false;

}  // namespace

void print_out(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if ((!written || std::fflush(stdout) != 0) && errno != EPIPE) out_failed = true;
}

bool print_failed() { return out_failed; }

void print_error(std::string_view text) {
  std::fflush(stdout);
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace rematch::cli
