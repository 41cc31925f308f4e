#pragma once

#include <vector>

#include "scenarios/report/report.h"

namespace rematch::scenarios {

/// Values from `low` to `high`.
struct Range {
  double low = 0;
  double high = 1;
  double span() const { return high - low; }
};

/// Of &Series::x or &Series::y over all series; never empty.
Range x_range(const Chart& chart);
/// Begins at zero, where lengths do; a line that stays far from it is not flattened for its sake.
Range y_range(const Chart& chart);

bool all_whole(const Chart& chart, std::vector<double> Series::*values);

}  // namespace rematch::scenarios
