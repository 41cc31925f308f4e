#include "scenarios/report/terminal.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "scenarios/report/axes.h"
#include "scenarios/report/text.h"

namespace rematch::scenarios {
namespace {

constexpr int kRows = 8;
constexpr int kMaxWidth = 110;

/// Markdown without its marks: [text](address) becomes text (address), ** goes.
std::string plain(std::string_view markdown) {
  std::string out;
  for (std::size_t i = 0; i < markdown.size(); ++i) {
    const std::size_t close = markdown[i] == '[' ? markdown.find(']', i) : i;
    const bool link = close != std::string_view::npos && markdown.substr(close, 2) == "](";
    if (markdown.substr(i, 2) == "**") {
      ++i;
    } else if (link && markdown[i] == ']') {
      out += " (";
      ++i;
    } else if (!link || markdown[i] != '[') {
      out += markdown[i];
    }
  }
  return out;
}

std::string paragraph(std::string_view text, int width, std::string_view indent = "") {
  std::string out;
  for (const std::string& line : wrapped(text, width - static_cast<int>(indent.size()))) {
    out += std::string(indent) + line + "\n";
  }
  return out;
}

/// The head of a table in as many lines as it takes; in a table wider than `width` the names of
/// columns are wrapped to what stands below them.
std::vector<std::vector<std::string>> head_lines(const Table& table, int width) {
  constexpr int kBetween = 2;
  constexpr int kLeast = 8;
  const std::size_t n = table.columns().size();
  std::vector<int> widths(n, kLeast);
  int total = 0;
  for (std::size_t i = 0; i < n; ++i) {
    for (const auto& row : table.rows()) {
      widths[i] = std::max(widths[i], cli::display_width(row[i]));
    }
    total += kBetween + std::max(widths[i], cli::display_width(table.columns()[i]));
  }
  std::vector<std::vector<std::string>> names(n);
  std::size_t height = 1;
  for (std::size_t i = 0; i < n; ++i) {
    const std::string& name = table.columns()[i];
    names[i] = total > width ? wrapped(name, widths[i]) : std::vector{name};
    height = std::max(height, names[i].size());
  }
  std::vector<std::vector<std::string>> lines(height, std::vector<std::string>(n));
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t k = 0; k < names[i].size(); ++k) {
      lines[height - names[i].size() + k][i] = names[i][k];
    }
  }
  return lines;
}

std::string table_text(const Table& table, int width, const cli::Paint& paint) {
  std::vector<bool> right;
  for (std::size_t i = 0; i < table.columns().size(); ++i) right.push_back(table.is_numeric(i));
  cli::Table text(right);
  const auto heads = head_lines(table, width);
  for (const auto& line : heads) text.add(line);
  for (const auto& row : table.rows()) text.add(row);
  const std::string lines = text.text();
  std::size_t end = 0;
  for (std::size_t i = 0; i < heads.size(); ++i) end = lines.find('\n', end) + 1;
  return paint.bold(table.title()) + "\n" + paint.dim(lines.substr(0, end)) + lines.substr(end);
}

std::string blocks(int eighths, int columns) {
  static constexpr const char* kBlocks[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  std::string out;
  for (int i = 0; i < std::min(eighths / 8, columns); ++i) out += "█";
  if (eighths / 8 < columns) out += kBlocks[eighths % 8];
  return out;
}

std::string bars_text(const Chart& chart, int width, const cli::Paint& paint) {
  int names = 0;
  double top = 0;
  for (const Series& series : chart.series) {
    names = std::max(names, cli::display_width(series.name));
    for (const double value : series.y) top = std::max(top, value);
  }
  constexpr int kValue = 16;
  const int columns = std::clamp(width - names - kValue - 4, 10, 60);
  std::string out;
  for (std::size_t category = 0; category < chart.categories.size(); ++category) {
    out += "  " + chart.categories[category] + "\n";
    for (const Series& series : chart.series) {
      const double value = series.y[category];
      const int eighths = top > 0 ? static_cast<int>(std::lround(value / top * columns * 8)) : 0;
      out += "    " + cli::padded(series.name, names) + " " + paint.cyan(blocks(eighths, columns)) +
             " " + number_text(value) + "\n";
    }
  }
  return out + paint.dim(fmt::format("  ({})", chart.y_label)) + "\n";
}

/// The highest value in each column, or what the last one before it had.
std::vector<double> columns_of(const Series& series, const Range& across, int columns,
                               double nothing) {
  std::vector<double> result(static_cast<std::size_t>(columns), nothing);
  std::vector<bool> seen(result.size(), false);
  for (std::size_t i = 0; i < series.x.size(); ++i) {
    const double share = (series.x[i] - across.low) / across.span();
    const auto at =
        static_cast<std::size_t>(std::clamp(static_cast<int>(share * columns), 0, columns - 1));
    result[at] = seen[at] ? std::max(result[at], series.y[i]) : series.y[i];
    seen[at] = true;
  }
  const auto last = std::find(seen.rbegin(), seen.rend(), true);
  const auto end = static_cast<std::size_t>(seen.rend() - last);
  for (std::size_t i = 1; i < end; ++i) {
    if (!seen[i]) result[i] = result[i - 1];
  }
  return result;
}

std::string curve_text(const Chart& chart, int width, const cli::Paint& paint) {
  static constexpr const char* kBlocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const Range up = y_range(chart);
  const Range across = x_range(chart);
  const std::string top = number_text(up.high);
  const std::string bottom = number_text(up.low);
  const int labels = std::max(cli::display_width(top), cli::display_width(bottom)) + 2;
  const int columns = std::clamp(width - labels - 2, 10, 72);
  std::string out = paint.dim("  " + chart.y_label) + "\n";
  for (const Series& series : chart.series) {
    out += "  " + series.name + "\n";
    const std::vector<double> values = columns_of(series, across, columns, up.low);
    for (int row = kRows - 1; row >= 0; --row) {
      std::string line;
      for (const double value : values) {
        int eighths = static_cast<int>(std::lround((value - up.low) / up.span() * kRows * 8));
        // Little is not nothing.
        if (value > up.low) eighths = std::max(eighths, 1);
        line += kBlocks[std::clamp(eighths - row * 8, 0, 8)];
      }
      line.erase(line.find_last_not_of(' ') + 1);
      const std::string label = row == kRows - 1 ? top : row == 0 ? bottom : "";
      out += paint.dim(cli::padded(label, labels, true) + " │") + paint.cyan(line) + "\n";
    }
  }
  out += paint.dim(cli::padded("", labels + 2) + number_text(across.low) + " to " +
                   number_text(across.high) + ", " + chart.x_label) +
         "\n";
  return out;
}

}  // namespace

std::string terminal_text(const Scenario& scenario, const Report& report, int width,
                          const cli::Paint& paint) {
  width = std::min(width, kMaxWidth);
  std::string out = paint.bold(scenario.name) + "\n";
  out += paragraph(scenario.question, width, "  > ");
  out += paint.dim(paragraph(plain(scenario.source), width, "  "));
  out += "\n" + paragraph(plain(scenario.answer), width);
  std::optional<std::size_t> before;
  for (const Report::Item& item : report.items()) {
    const auto* claim = std::get_if<Claim>(&item);
    const bool in_list =
        before == item.index() && (claim != nullptr || std::holds_alternative<Measured>(item));
    before = item.index();
    if (!in_list) out += "\n";
    if (claim != nullptr) {
      const std::string text = paragraph(plain(claim->sentence), width, "         ");
      out += (claim->holds ? paint.green("  holds  ") : paint.red("  FAILED ")) + text.substr(9);
    } else if (const auto* words = std::get_if<Paragraph>(&item)) {
      out += paragraph(plain(words->markdown), width);
    } else if (const auto* table = std::get_if<Table>(&item)) {
      out += table_text(*table, width, paint);
    } else if (const auto* chart = std::get_if<Chart>(&item)) {
      out += paint.bold(chart->title) + "\n";
      out += chart->kind == Chart::Kind::bars ? bars_text(*chart, width, paint)
                                              : curve_text(*chart, width, paint);
    } else if (const auto* measured = std::get_if<Measured>(&item)) {
      out += paint.dim(paragraph("measured: " + measured->line, width, "  "));
    }
  }
  return out;
}

}  // namespace rematch::scenarios
