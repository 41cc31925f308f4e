#include "properties/cli/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "properties/cli/chart.h"
#include "properties/output/svg_parts.h"

namespace rematch::cli {
namespace {

constexpr double kWidth = 960;
constexpr double kLeft = 110;
constexpr double kRight = 20;
constexpr double kPanel = 200;
constexpr double kGap = 72;
constexpr double kTop = 64;
constexpr double kPlot = kWidth - kLeft - kRight;
constexpr double kHeight = kTop + 2 * kPanel + 2 * kGap;
/// Steps drawn per panel; more events than this are drawn as the highest of each bucket.
constexpr std::size_t kMaxSteps = 2000;

constexpr std::string_view kLive = kBlue;
constexpr std::string_view kSaved = kOrange;

struct Axes {
  std::int64_t top = 1;
  std::size_t events = 1;
  double x(std::size_t event) const {
    return kLeft + kPlot * static_cast<double>(event) / static_cast<double>(events);
  }
  double y(double base, std::int64_t bytes) const {
    return base - kPanel * static_cast<double>(bytes) / static_cast<double>(top);
  }
};

std::string step_path(std::span<const TimelinePoint> timeline, const Axes& axes, double base,
                      std::int64_t TimelinePoint::*value, bool closed) {
  const std::size_t bucket = (timeline.size() + kMaxSteps - 1) / kMaxSteps;
  std::string path = closed ? fmt::format("M{:.1f} {:.1f}", axes.x(0), base) : "";
  for (std::size_t i = 0; i < timeline.size(); i += bucket) {
    std::int64_t highest = 0;
    for (std::size_t k = i; k < std::min(i + bucket, timeline.size()); ++k) {
      highest = std::max(highest, timeline[k].*value);
    }
    const double y = axes.y(base, highest);
    path += path.empty() ? fmt::format("M{:.1f} {:.1f}", axes.x(0), y) : fmt::format("V{:.1f}", y);
    path += fmt::format("H{:.1f}", axes.x(std::min(i + bucket, timeline.size())));
  }
  if (closed) path += fmt::format("V{:.1f}Z", base);
  return path;
}

std::string panel(std::string_view name, std::span<const TimelinePoint> timeline, const Axes& axes,
                  double base) {
  std::string out = fmt::format("<text x=\"{}\" y=\"{}\" font-weight=\"600\">{} run</text>\n",
                                kLeft, base - kPanel - 12, name);
  for (const PhaseSpan& span : phases_of(timeline)) {
    const double from = axes.x(span.begin);
    const double to = axes.x(span.end);
    if (span.phase == Moment::after_backward) {
      out += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" fill=\"{}\" "
          "fill-opacity=\"0.12\"/>\n",
          from, base - kPanel, to - from, kPanel, kGrey);
    }
    const std::string phase = phase_name(span.phase);
    if (to - from > 7.5 * static_cast<double>(phase.size())) {
      out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
                         (from + to) / 2, base + 18, phase);
    }
  }
  const auto step = static_cast<std::int64_t>(tick_step(static_cast<double>(axes.top), 5, 1).size);
  for (std::int64_t mark = 0; mark <= axes.top; mark += step) {
    const double y = axes.y(base, mark);
    out += fmt::format(
        "<line x1=\"{}\" y1=\"{:.1f}\" x2=\"{}\" y2=\"{:.1f}\" stroke=\"{}\" "
        "stroke-opacity=\"{}\"/>\n<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n",
        kLeft, y, kWidth - kRight, y, kGrey, mark == 0 ? 1.0 : 0.3, kLeft - 8, y + 4,
        grouped(mark));
  }
  if (timeline.empty()) return out;
  out += fmt::format("<path d=\"{}\" fill=\"{}\" fill-opacity=\"0.25\" stroke=\"{}\"/>\n",
                     step_path(timeline, axes, base, &TimelinePoint::live, true), kLive, kLive);
  out += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n",
                     step_path(timeline, axes, base, &TimelinePoint::saved, false), kSaved);
  const std::int64_t peak = peak_live(timeline);
  const double y = axes.y(base, peak);
  out += fmt::format(
      "<line x1=\"{}\" y1=\"{:.1f}\" x2=\"{}\" y2=\"{:.1f}\" stroke=\"{}\" "
      "stroke-dasharray=\"5 4\"/>\n<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\" fill=\"{}\">"
      "peak {} bytes</text>\n",
      kLeft, y, kWidth - kRight, y, kLive, kWidth - kRight, y - 5, kLive, grouped(peak));
  return out;
}

}  // namespace

std::string memory_svg(std::span<const TimelinePoint> plain,
                       std::span<const TimelinePoint> checkpointed, std::string_view title) {
  Axes axes;
  axes.top = std::max({std::int64_t{1}, peak_live(plain), peak_live(checkpointed)});
  axes.events = std::max({std::size_t{1}, plain.size(), checkpointed.size()});
  const double first = kTop + kPanel;
  const double second = first + kGap + kPanel;

  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" role=\"img\" font-family=\"system-ui, sans-serif\" font-size=\"12\" "
      "fill=\"{2}\">\n<title>{3}</title>\n",
      kWidth, kHeight, kGrey, xml_escaped(title));
  out += fmt::format("<text x=\"{}\" y=\"22\" font-size=\"15\" font-weight=\"600\">{}</text>\n",
                     kLeft, xml_escaped(title));
  out += fmt::format(
      "<g transform=\"translate({}, 22)\"><rect x=\"0\" y=\"-10\" width=\"14\" height=\"10\" "
      "fill=\"{}\" fill-opacity=\"0.25\" stroke=\"{}\"/><text x=\"20\">live bytes</text>"
      "<line x1=\"100\" x2=\"114\" y1=\"-5\" y2=\"-5\" stroke=\"{}\" stroke-width=\"2\"/>"
      "<text x=\"120\">saved for backward</text></g>\n",
      kWidth - kRight - 240, kLive, kLive, kSaved);
  out += panel("plain", plain, axes, first);
  out += panel("checkpointed", checkpointed, axes, second);
  out += fmt::format(
      "<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">time, in allocation events (both panels "
      "to the same scale)</text>\n",
      kLeft + kPlot / 2, second + 42);
  out += fmt::format(
      "<text transform=\"translate(18, {:.1f}) rotate(-90)\" text-anchor=\"middle\">bytes</text>\n",
      (kTop + second) / 2);
  return out + "</svg>\n";
}

}  // namespace rematch::cli
