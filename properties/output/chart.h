#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "properties/output/terminal.h"

namespace rematch::cli {

/// Points (x[i], y[i]), x not descending. For bars x is empty and y[i] belongs to category i.
struct Series {
  std::string name;
  std::vector<double> x, y;
};

/// Steps over events: value i holds from i to i + 1.
Series over_events(std::string name, std::span<const std::int64_t> values);

/// A value of an axis that has a name.
struct Mark {
  double at = 0;
  std::string label;
};

/// A picture as data. The labels name the unit.
struct Chart {
  std::string title, x_label, y_label;
  enum class Kind {
    lines,
    steps,  ///< y[i] holds from x[i] to x[i + 1].
    bars,   ///< A group for each category, in it a bar for each series.
  } kind = Kind::lines;
  std::vector<Series> series = {};
  /// Of bars.
  std::vector<std::string> categories = {};
  /// Parts of the x-axis from its beginning: each lasts until the next one, the last one as long as
  /// the series.
  std::vector<Mark> phases = {};
};

/// Values from `low` to `high`.
struct Range {
  double low = 0;
  double high = 1;
  double span() const { return high - low; }
};

/// Bounds that all of `charts` fit into, so that they can be compared by eye; never empty. Values
/// of y begin at zero, where lengths do; a line that stays far from it is not flattened for its
/// sake.
struct Scale {
  Range x, y;
};
Scale scale_of(std::span<const Chart> charts);

/// A chart without its title as block characters for a terminal of `width` columns; of the steps or
/// points in a column the highest is shown.
std::string chart_text(const Chart& chart, const Scale& scale, int width, const Paint& paint);

}  // namespace rematch::cli
