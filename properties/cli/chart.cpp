#include "properties/cli/chart.h"

#include <algorithm>

namespace rematch::cli {
namespace {

/// Columns taken by the byte labels and the axis.
constexpr int kLabelWidth = 14;

std::string repeated(std::string_view piece, std::size_t times) {
  std::string out;
  for (std::size_t i = 0; i < times; ++i) out += piece;
  return out;
}

std::vector<std::int64_t> columns_of(std::span<const TimelinePoint> timeline,
                                     std::size_t events_per_column) {
  std::vector<std::int64_t> columns;
  for (std::size_t i = 0; i < timeline.size(); i += events_per_column) {
    const auto bucket = timeline.subspan(i, std::min(events_per_column, timeline.size() - i));
    columns.push_back(peak_live(bucket));
  }
  return columns;
}

}  // namespace

std::vector<PhaseSpan> phases_of(std::span<const TimelinePoint> timeline) {
  std::vector<PhaseSpan> spans;
  for (std::size_t i = 0; i < timeline.size(); ++i) {
    if (spans.empty() || spans.back().phase != timeline[i].phase) {
      spans.push_back({timeline[i].phase, i, i});
    }
    spans.back().end = i + 1;
  }
  return spans;
}

std::string phase_name(Moment phase) {
  switch (phase) {
    case Moment::after_forward:
      return "forward";
    case Moment::after_backward:
      return "backward";
    case Moment::after_step:
      return "step";
  }
  return "?";
}

std::int64_t peak_live(std::span<const TimelinePoint> timeline) {
  std::int64_t peak = 0;
  for (const TimelinePoint& point : timeline) peak = std::max(peak, point.live);
  return peak;
}

ChartScale common_scale(std::span<const std::span<const TimelinePoint>> timelines, int width) {
  ChartScale scale;
  std::size_t longest = 1;
  for (const auto& timeline : timelines) {
    scale.top = std::max(scale.top, peak_live(timeline));
    longest = std::max(longest, timeline.size());
  }
  const auto columns = static_cast<std::size_t>(std::max(10, width - kLabelWidth));
  scale.events_per_column = (longest + columns - 1) / columns;
  return scale;
}

std::string chart(std::span<const TimelinePoint> timeline, const ChartScale& scale,
                  const Paint& paint) {
  if (timeline.empty()) return "  (no timeline was recorded)\n";
  static constexpr const char* kBlocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const std::vector<std::int64_t> columns = columns_of(timeline, scale.events_per_column);

  std::string out;
  for (int row = scale.rows - 1; row >= 0; --row) {
    const bool labelled = row == scale.rows - 1 || row == scale.rows / 2;
    const std::int64_t mark = scale.top * (row + 1) / scale.rows;
    out += paint.dim(padded(labelled ? grouped(mark) + " B " : "", kLabelWidth - 1, true) +
                     (labelled ? "┤" : "│"));
    std::string blocks;
    for (const std::int64_t value : columns) {
      // A value above zero shows at least one eighth, so that "little" never looks like "none".
      std::int64_t eighths = value * scale.rows * 8 / scale.top;
      if (value > 0) eighths = std::max<std::int64_t>(eighths, 1);
      blocks += kBlocks[std::clamp<std::int64_t>(eighths - row * 8, 0, 8)];
    }
    out += paint.cyan(blocks) + '\n';
  }

  std::string axis;
  std::string names;
  std::size_t column = 0;
  for (const PhaseSpan& span : phases_of(timeline)) {
    const std::size_t end = (span.end + scale.events_per_column - 1) / scale.events_per_column;
    if (end <= column) continue;
    const std::size_t width = end - column;
    axis += "┬" + repeated("─", width - 1);
    const std::string name = phase_name(span.phase);
    names += width > name.size()
                 ? padded(name, static_cast<int>(width))
                 : padded(width > 1 ? name.substr(0, 1) : "", static_cast<int>(width));
    column = end;
  }
  out += paint.dim(padded("0 B ", kLabelWidth - 1, true) + "└" + axis) + '\n';
  names.erase(names.find_last_not_of(' ') + 1);
  out += paint.dim(std::string(kLabelWidth, ' ') + names) + '\n';
  return out;
}

}  // namespace rematch::cli
