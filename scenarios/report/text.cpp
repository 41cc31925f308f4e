#include "scenarios/report/text.h"

#include <fmt/format.h>

#include <cmath>

#include "properties/output/terminal.h"

namespace rematch::scenarios {

std::string number_text(double value) {
  constexpr double kExact = 9e15;
  if (std::nearbyint(value) == value && std::abs(value) < kExact) {
    return cli::grouped(static_cast<std::int64_t>(value));
  }
  constexpr double kFourDigits = 1000;
  if (std::abs(value) >= kFourDigits && std::abs(value) < kExact) {
    return cli::grouped(static_cast<std::int64_t>(std::nearbyint(value)));
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
    const int columns = cli::display_width(word);
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

}  // namespace rematch::scenarios
