#pragma once

#include <fmt/format.h>

#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "properties/output/chart.h"

namespace rematch::scenarios {

/// Plain text, which renderers escape.
struct Cell {
  std::string text;
  template <class T>
  Cell(const T& value) : text(fmt::format("{}", value)) {}
};

/// Rows of cells under column heads.
class Table {
 public:
  Table(std::string title, std::vector<std::string> columns)
      : title_(std::move(title)), columns_(std::move(columns)) {}

  /// Throws std::invalid_argument unless there is one cell per column.
  void row(const std::vector<Cell>& cells);
  /// Cells that are formatted together, with " | " between them.
  template <class First, class... Rest>
  void row(fmt::format_string<First, Rest...> cells, First&& first, Rest&&... rest) {
    row_of(fmt::format(cells, std::forward<First>(first), std::forward<Rest>(rest)...));
  }

  const std::string& title() const { return title_; }
  const std::vector<std::string>& columns() const { return columns_; }
  const std::vector<std::vector<std::string>>& rows() const { return rows_; }
  /// Whether every cell of the column begins with a digit, a sign or a point, or is "-" or empty:
  /// such columns are aligned to the right.
  bool is_numeric(std::size_t column) const;

 private:
  void row_of(std::string_view cells);

  std::string title_;
  std::vector<std::string> columns_;
  std::vector<std::vector<std::string>> rows_;
};

using cli::Chart;
using cli::Series;

/// A chart of bars, one for each of `series` in every category; it has no category yet.
Chart bars(std::string title, std::string x_label, std::string y_label,
           const std::vector<std::string>& series);
/// A chart of lines, one for each of `series`, which have no points yet.
Chart lines(std::string title, std::string x_label, std::string y_label,
            const std::vector<std::string>& series = {});
/// A line through these values, from 1 on.
Series numbered(std::string name, std::vector<double> values);
inline std::string yes(bool holds) { return holds ? "yes" : "no"; }
/// Adds a category, with a value for each series.
void add_bars(Chart& chart, std::string category, const std::vector<double>& values);

inline double in_kib(std::int64_t bytes) { return static_cast<double>(bytes) / 1024; }

struct Paragraph {
  std::string markdown;
};
struct Claim {
  bool holds = false;
  std::string sentence;
};
struct Measured {
  std::string line;
};

/// Findings of a story, in the order in which it is told. Everything but measured() must be the
/// same to the digit on every machine.
class Report {
 public:
  using Item = std::variant<Paragraph, Table, Chart, Claim, Measured>;

  /// One paragraph of Markdown: code in backticks, **emphasis**, links. With further arguments
  /// say(), claim() and measured() format the text by them.
  void say(std::string markdown_paragraph);
  /// The table lives as long as the report, where it is now: rows may be added later.
  Table& table(std::string title, std::vector<std::string> columns);
  /// Throws std::invalid_argument when a series is not as Series and Chart say.
  void chart(Chart chart);
  /// A claim that fails fails the story's test and the program.
  void claim(bool holds, std::string sentence);
  /// Times and the like, which differ from run to run: shown by the program, never in README.md.
  void measured(std::string line);

  template <class First, class... Rest>
  void say(fmt::format_string<First, Rest...> text, First&& first, Rest&&... rest) {
    say(fmt::format(text, std::forward<First>(first), std::forward<Rest>(rest)...));
  }
  template <class First, class... Rest>
  void claim(bool holds, fmt::format_string<First, Rest...> text, First&& first, Rest&&... rest) {
    claim(holds, fmt::format(text, std::forward<First>(first), std::forward<Rest>(rest)...));
  }
  template <class First, class... Rest>
  void measured(fmt::format_string<First, Rest...> text, First&& first, Rest&&... rest) {
    measured(fmt::format(text, std::forward<First>(first), std::forward<Rest>(rest)...));
  }

  const std::deque<Item>& items() const { return items_; }
  /// The number of claims, and of those that failed.
  int claims() const { return claims_; }
  int failed() const { return failed_; }

 private:
  std::deque<Item> items_;
  int claims_ = 0;
  int failed_ = 0;
};

}  // namespace rematch::scenarios
