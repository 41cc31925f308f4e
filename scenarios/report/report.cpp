#include "scenarios/report/report.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <stdexcept>

namespace rematch::scenarios {
namespace {

void refuse(const std::string& what, const std::string& why) {
  throw std::invalid_argument("[report] " + what + ": " + why);
}

void check(const Chart& chart, const Series& series) {
  const std::string name = "series \"" + series.name + "\" of chart \"" + chart.title + "\"";
  const std::size_t expected =
      chart.kind == Chart::Kind::bars ? chart.categories.size() : series.x.size();
  if (series.y.size() != expected) {
    refuse(name, "expected " + std::to_string(expected) + " values of y, got " +
                     std::to_string(series.y.size()));
  }
  if (!std::is_sorted(series.x.begin(), series.x.end())) refuse(name, "x descends");
  const auto finite = [](double value) { return std::isfinite(value); };
  if (!std::all_of(series.x.begin(), series.x.end(), finite) ||
      !std::all_of(series.y.begin(), series.y.end(), finite)) {
    refuse(name, "a value is not finite");
  }
  if (chart.kind == Chart::Kind::bars &&
      std::any_of(series.y.begin(), series.y.end(), [](double value) { return value < 0; })) {
    refuse(name, "a bar cannot be negative");
  }
}

}  // namespace

Chart lines(std::string title, std::string x_label, std::string y_label,
            const std::vector<std::string>& series) {
  Chart chart{std::move(title), std::move(x_label), std::move(y_label), Chart::Kind::lines};
  for (const std::string& name : series) chart.series.push_back({name, {}, {}});
  return chart;
}

Chart bars(std::string title, std::string x_label, std::string y_label,
           const std::vector<std::string>& series) {
  Chart chart = lines(std::move(title), std::move(x_label), std::move(y_label), series);
  chart.kind = Chart::Kind::bars;
  return chart;
}

Series numbered(std::string name, std::vector<double> values) {
  Series series{std::move(name), std::vector<double>(values.size()), std::move(values)};
  std::iota(series.x.begin(), series.x.end(), 1.0);
  return series;
}

void add_bars(Chart& chart, std::string category, const std::vector<double>& values) {
  chart.categories.push_back(std::move(category));
  for (std::size_t i = 0; i < values.size(); ++i) chart.series[i].y.push_back(values[i]);
}

void Table::row(const std::vector<Cell>& cells) {
  if (cells.size() != columns_.size()) {
    refuse("table \"" + title_ + "\"", "expected " + std::to_string(columns_.size()) +
                                           " cells in a row, got " + std::to_string(cells.size()));
  }
  std::vector<std::string>& row = rows_.emplace_back();
  for (const Cell& cell : cells) row.push_back(cell.text);
}

void Table::row_of(std::string_view cells) {
  constexpr std::string_view kBetween = " | ";
  std::vector<Cell> row;
  for (std::size_t end; (end = cells.find(kBetween)) != std::string_view::npos;) {
    row.emplace_back(cells.substr(0, end));
    cells.remove_prefix(end + kBetween.size());
  }
  row.emplace_back(cells);
  this->row(row);
}

bool Table::is_numeric(std::size_t column) const {
  return std::all_of(rows_.begin(), rows_.end(), [&](const std::vector<std::string>& row) {
    const std::string& cell = row[column];
    return cell.empty() || cell.find_first_of("0123456789+-.") == 0;
  });
}

void Report::say(std::string markdown_paragraph) {
  items_.emplace_back(Paragraph{std::move(markdown_paragraph)});
}

Table& Report::table(std::string title, std::vector<std::string> columns) {
  items_.emplace_back(Table(std::move(title), std::move(columns)));
  return std::get<Table>(items_.back());
}

void Report::chart(Chart chart) {
  if (chart.series.empty()) refuse("chart \"" + chart.title + "\"", "no series");
  for (const Series& series : chart.series) check(chart, series);
  items_.emplace_back(std::move(chart));
}

void Report::claim(bool holds, std::string sentence) {
  items_.emplace_back(Claim{holds, std::move(sentence)});
  ++claims_;
  if (!holds) ++failed_;
}

void Report::measured(std::string line) { items_.emplace_back(Measured{std::move(line)}); }

}  // namespace rematch::scenarios
