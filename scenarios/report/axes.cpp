#include "scenarios/report/axes.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace rematch::scenarios {
namespace {

Range range_of(const Chart& chart, std::vector<double> Series::*values) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Range range{kInfinity, -kInfinity};
  for (const Series& series : chart.series) {
    for (const double value : series.*values) {
      range.low = std::min(range.low, value);
      range.high = std::max(range.high, value);
    }
  }
  return range.low > range.high ? Range{} : range;
}

}  // namespace

Range x_range(const Chart& chart) {
  Range range = range_of(chart, &Series::x);
  if (range.span() <= 0) range.high = range.low + 1;
  return range;
}

Range y_range(const Chart& chart) {
  Range range = range_of(chart, &Series::y);
  if (chart.kind != Chart::Kind::lines || range.low < range.high / 2) {
    range.low = std::min(range.low, 0.0);
    range.high = std::max(range.high, 0.0);
  }
  if (range.span() <= 0) range.high = range.low + 1;
  return range;
}

bool all_whole(const Chart& chart, std::vector<double> Series::*values) {
  return std::all_of(chart.series.begin(), chart.series.end(), [&](const Series& series) {
    return std::all_of((series.*values).begin(), (series.*values).end(),
                       [](double value) { return std::nearbyint(value) == value; });
  });
}

}  // namespace rematch::scenarios
