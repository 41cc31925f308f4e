#include "properties/cli/timeline.h"

#include <algorithm>

namespace rematch::cli {
namespace {

Chart memory_chart(std::string title, std::span<const TimelinePoint> timeline) {
  std::vector<std::int64_t> live;
  std::vector<std::int64_t> saved;
  for (const TimelinePoint& point : timeline) {
    live.push_back(point.live);
    saved.push_back(point.saved);
  }
  Chart chart{.title = std::move(title),
              .x_label = "time, in allocation events",
              .y_label = "bytes",
              .kind = Chart::Kind::steps,
              .series = {over_events("live", live), over_events("saved for backward", saved)}};
  for (const PhaseSpan& span : phases_of(timeline)) {
    chart.phases.push_back({static_cast<double>(span.begin), phase_name(span.phase)});
  }
  if (!live.empty()) {
    const std::int64_t peak = *std::max_element(live.begin(), live.end());
    chart.levels = {{static_cast<double>(peak), "peak " + grouped(peak) + " bytes"}};
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

std::vector<Chart> memory_charts(const Record& plain, const Record& checkpointed) {
  return {memory_chart("plain run", plain.timeline),
          memory_chart("checkpointed run", checkpointed.timeline)};
}

std::vector<std::string> memory_texts(const Record& plain, const Record& checkpointed, int width,
                                      const Paint& paint) {
  std::vector<Chart> charts = memory_charts(plain, checkpointed);
  std::vector<std::string> texts;
  for (Chart& chart : charts) {
    chart.series = {std::move(chart.series[0])};
    chart.series[0].name.clear();
    chart.y_label = "live bytes";
  }
  const Scale scale = scale_of(charts);
  for (const Chart& chart : charts) texts.push_back(chart_text(chart, scale, width, paint));
  return texts;
}

}  // namespace rematch::cli
