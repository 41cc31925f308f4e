#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "properties/output/chart.h"

namespace rematch::cli {
namespace {

std::string blocks(int eighths, int columns) {
  static constexpr const char* kBlocks[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  std::string out;
  for (int i = 0; i < std::min(eighths / 8, columns); ++i) out += "█";
  if (eighths / 8 < columns) out += kBlocks[eighths % 8];
  return out;
}

std::string bars_text(const Chart& chart, int width, const Paint& paint) {
  int names = 0;
  double top = 0;
  for (const Series& series : chart.series) {
    names = std::max(names, display_width(series.name));
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
      out += "    " + padded(series.name, names) + " " + paint.cyan(blocks(eighths, columns)) +
             " " + number_text(value) + "\n";
    }
  }
  return out + paint.dim(fmt::format("  ({})", chart.y_label)) + "\n";
}

/// Where a value of x is drawn.
std::size_t column_of(double value, const Range& across, int columns) {
  const double share = (value - across.low) / across.span();
  return static_cast<std::size_t>(std::clamp(static_cast<int>(share * columns), 0, columns - 1));
}

/// The highest value in each column, or what the last one before it had.
std::vector<double> columns_of(const Series& series, const Scale& scale, int columns) {
  std::vector<double> result(static_cast<std::size_t>(columns), scale.y.low);
  std::vector<bool> seen(result.size(), false);
  for (std::size_t i = 0; i < series.x.size(); ++i) {
    const std::size_t at = column_of(series.x[i], scale.x, columns);
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

/// An axis that is cut where a phase begins, and below it their names, or what there is room for.
std::pair<std::string, std::string> phases_text(const Chart& chart, const Scale& scale,
                                                int columns) {
  std::string axis;
  std::string names;
  const double end = scale_of({&chart, 1}).x.high;
  for (std::size_t i = 0; i < chart.phases.size(); ++i) {
    const double to = i + 1 < chart.phases.size() ? chart.phases[i + 1].at : end;
    const std::size_t from = column_of(chart.phases[i].at, scale.x, columns);
    const std::size_t width = column_of(to, scale.x, columns) - from;
    if (width == 0) continue;
    axis += "┬";
    for (std::size_t k = 1; k < width; ++k) axis += "─";
    const std::string& name = chart.phases[i].label;
    names += padded(name.size() < width ? name
                    : width > 1         ? name.substr(0, 1)
                                        : "",
                    static_cast<int>(width));
  }
  names.erase(names.find_last_not_of(' ') + 1);
  return {axis, names};
}

std::string curve_text(const Chart& chart, const Scale& scale, int width, const Paint& paint) {
  static constexpr const char* kBlocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  constexpr int kRows = 8;
  const Range& up = scale.y;
  const std::string top = number_text(up.high);
  const std::string bottom = number_text(up.low);
  const int labels = std::max(display_width(top), display_width(bottom)) + 2;
  const int columns = std::max(10, width - labels - 2);
  std::string out = paint.dim("  " + chart.y_label) + "\n";
  for (const Series& series : chart.series) {
    if (!series.name.empty()) out += "  " + series.name + "\n";
    if (series.x.empty()) {
      out += "  (nothing was recorded)\n";
      continue;
    }
    const std::vector<double> values = columns_of(series, scale, columns);
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
      out += paint.dim(padded(label, labels, true) + " │") + paint.cyan(line) + "\n";
    }
  }
  const std::string margin = padded("", labels + 2);
  if (!chart.phases.empty()) {
    const auto [axis, names] = phases_text(chart, scale, columns);
    out += paint.dim(padded("", labels) + " └" + axis + "\n" + margin + names) + "\n";
  }
  const std::string across = number_text(scale.x.low) + " to " + number_text(scale.x.high);
  return out + paint.dim(margin + cut(across + ", " + chart.x_label, columns)) + "\n";
}

}  // namespace

std::string chart_text(const Chart& chart, const Scale& scale, int width, const Paint& paint) {
  return chart.kind == Chart::Kind::bars ? bars_text(chart, width, paint)
                                         : curve_text(chart, scale, width, paint);
}

}  // namespace rematch::cli
