#include "properties/cli/timeline.h"

namespace rematch::cli {
namespace {

Chart live_bytes(std::span<const TimelinePoint> timeline) {
  std::vector<std::int64_t> live;
  for (const TimelinePoint& point : timeline) live.push_back(point.live);
  Chart chart{.title = "",
              .x_label = "time, in allocation events",
              .y_label = "live bytes",
              .kind = Chart::Kind::steps,
              .series = {over_events("", live)}};
  for (const PhaseSpan& span : phases_of(timeline)) {
    chart.phases.push_back({static_cast<double>(span.begin), phase_name(span.phase)});
  }
  return chart;
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

std::vector<std::string> memory_texts(const Record& plain, const Record& checkpointed, int width,
                                      const Paint& paint) {
  const Chart charts[] = {live_bytes(plain.timeline), live_bytes(checkpointed.timeline)};
  std::vector<std::string> texts;
  const Scale scale = scale_of(charts);
  for (const Chart& chart : charts) texts.push_back(chart_text(chart, scale, width, paint));
  return texts;
}

}  // namespace rematch::cli
