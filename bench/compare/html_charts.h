#pragma once

#include <string>
#include <string_view>

#include "bench/compare/history.h"
#include "bench/compare/report.h"

namespace rematch::compare {

/// `text` as it stands in HTML, in elements and in quoted attributes.
std::string escaped(std::string_view text);

/// A name that may be broken behind its slashes.
std::string name_html(std::string_view name);
/// A sentence in which no line begins with a percent sign.
std::string prose_html(std::string_view text);

/// The scale of the forest plot: ratios from 1 / top to top, logarithmic.
struct ForestScale {
  double top;
  double edge;  ///< 1 + the minimum effect.
  /// In percent of the width; beyond the scale is its end.
  double at(double ratio) const;
};
ForestScale forest_scale(const Comparison& comparison);
std::string forest_axis(const ForestScale& scale);
/// One row: name, interval on the scale, numbers, verdict.
std::string forest_row(const BenchmarkResult& benchmark, const ForestScale& scale);

/// The bytes of both sides over one step, to the same scale.
std::string timeline_figure(const TimelinePair& pair);
/// One benchmark over the commits, with the levels and changes that were found.
std::string history_figure(const HistoryReport& report, const HistorySeries& series);

}  // namespace rematch::compare
