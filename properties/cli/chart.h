#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "properties/output/terminal.h"
#include "properties/record/record.h"

namespace rematch::cli {

/// Events [begin, end) of a timeline that share a phase.
struct PhaseSpan {
  Moment phase{};
  std::size_t begin = 0;
  std::size_t end = 0;
};

std::vector<PhaseSpan> phases_of(std::span<const TimelinePoint> timeline);

/// "forward", "backward" or "step".
std::string phase_name(Moment phase);

std::int64_t peak_live(std::span<const TimelinePoint> timeline);

/// Bytes over time as columns of block characters, one column the highest value of
/// `events_per_column` events, with byte labels on the left and the phases underneath. Two charts
/// drawn with the same `top` and `events_per_column` can be compared by eye.
struct ChartScale {
  std::int64_t top = 1;
  std::size_t events_per_column = 1;
  int rows = 10;
};

/// The scale at which all of `timelines` fit into `width` columns.
ChartScale common_scale(std::span<const std::span<const TimelinePoint>> timelines, int width);

std::string chart(std::span<const TimelinePoint> timeline, const ChartScale& scale,
                  const Paint& paint);

}  // namespace rematch::cli
