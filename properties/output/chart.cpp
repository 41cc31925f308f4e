#include "properties/output/chart.h"

#include <algorithm>
#include <limits>

namespace rematch::cli {
namespace {

Range range_of(std::span<const Chart> charts, std::vector<double> Series::*values) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Range range{kInfinity, -kInfinity};
  for (const Chart& chart : charts) {
    for (const Series& series : chart.series) {
      for (const double value : series.*values) {
        range.low = std::min(range.low, value);
        range.high = std::max(range.high, value);
      }
    }
  }
  return range.low > range.high ? Range{} : range;
}

}  // namespace

Series over_events(std::string name, std::span<const std::int64_t> values) {
  Series series{std::move(name), {}, {values.begin(), values.end()}};
  // The last value holds for as long as the others.
  if (!values.empty()) series.y.push_back(series.y.back());
  for (std::size_t i = 0; i < series.y.size(); ++i) series.x.push_back(static_cast<double>(i));
  return series;
}

Scale scale_of(std::span<const Chart> charts) {
  Scale scale{range_of(charts, &Series::x), range_of(charts, &Series::y)};
  Range& y = scale.y;
  for (const Chart& chart : charts) {
    if (chart.kind != Chart::Kind::lines || y.low < y.high / 2) {
      y.low = std::min(y.low, 0.0);
      y.high = std::max(y.high, 0.0);
    }
  }
  for (Range* range : {&scale.x, &scale.y}) {
    if (range->span() <= 0) range->high = range->low + 1;
  }
  return scale;
}

}  // namespace rematch::cli
