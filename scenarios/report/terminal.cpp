#include "scenarios/report/render.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace rematch::scenarios {
namespace {

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
  for (const std::string& line : cli::wrapped(text, width - static_cast<int>(indent.size()))) {
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
    names[i] = total > width ? cli::wrapped(name, widths[i]) : std::vector{name};
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
      out += chart_text(*chart, cli::scale_of({chart, 1}), width, paint);
    } else if (const auto* measured = std::get_if<Measured>(&item)) {
      out += paint.dim(paragraph("measured: " + measured->line, width, "  "));
    }
  }
  out += "\n" + paint.bold("In PyTorch") + "\n";
  out += paragraph(plain(scenario.in_pytorch.text), width);
  return out + paint.dim(paragraph("semantics.json: " + scenario.in_pytorch.probes(), width, "  "));
}

}  // namespace rematch::scenarios
