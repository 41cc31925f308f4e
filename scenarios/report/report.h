#pragma once

#include <deque>
#include <string>
#include <variant>
#include <vector>

#include "properties/output/chart.h"

namespace rematch::scenarios {

/// Rows of text under column heads. A cell is plain text; renderers escape it.
class Table {
 public:
  Table(std::string title, std::vector<std::string> columns)
      : title_(std::move(title)), columns_(std::move(columns)) {}

  /// Throws std::invalid_argument unless there is one cell per column.
  void row(std::vector<std::string> cells);

  const std::string& title() const { return title_; }
  const std::vector<std::string>& columns() const { return columns_; }
  const std::vector<std::vector<std::string>>& rows() const { return rows_; }
  /// Whether every cell of the column begins with a digit, a sign or a point, or is "-" or empty:
  /// such columns are aligned to the right.
  bool is_numeric(std::size_t column) const;

 private:
  std::string title_;
  std::vector<std::string> columns_;
  std::vector<std::vector<std::string>> rows_;
};

using cli::Chart;
using cli::Series;

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

/// What a story found, in the order in which it is told. Everything but measured() must be the same
/// to the digit on every machine.
class Report {
 public:
  using Item = std::variant<Paragraph, Table, Chart, Claim, Measured>;

  /// One paragraph of Markdown: code in backticks, **emphasis**, links.
  void say(std::string markdown_paragraph);
  /// The table lives as long as the report, where it is now: rows may be added later.
  Table& table(std::string title, std::vector<std::string> columns);
  /// Throws std::invalid_argument when a series is not as Series and Chart say.
  void chart(Chart chart);
  /// A claim that fails fails the story's test and the program.
  void claim(bool holds, std::string sentence);
  /// Times and the like, which differ from run to run: shown by the program, never in README.md.
  void measured(std::string line);

  const std::deque<Item>& items() const { return items_; }
  /// The number of claims, and of those that failed.
  int claims() const;
  int failed() const;

 private:
  std::deque<Item> items_;
};

}  // namespace rematch::scenarios
