#pragma once

#include <span>
#include <string>

#include "properties/record/record.h"

namespace rematch::cli {

/// A self-contained SVG picture of bytes over time: the plain run above, the checkpointed run
/// below, on the same axes, each with live bytes (filled), saved bytes (line), the peak marked and
/// the phases shaded. The colours read on light and dark backgrounds. `title` is escaped.
std::string memory_svg(std::span<const TimelinePoint> plain,
                       std::span<const TimelinePoint> checkpointed, std::string_view title);

}  // namespace rematch::cli
