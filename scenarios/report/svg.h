#pragma once

#include <string>

#include "scenarios/report/report.h"

namespace rematch::scenarios {

/// A chart as a self-contained SVG picture without a size of its own: it takes the width that it is
/// given, and its text stays legible from 360 to 1200 pixels, on light and dark pages. Values of
/// bars must not be negative. Long series are thinned: of neighbouring steps the highest is drawn,
/// of neighbouring points of a line the first.
std::string svg(const Chart& chart);

}  // namespace rematch::scenarios
