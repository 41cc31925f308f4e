#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "properties/output/chart.h"
#include "properties/output/svg_parts.h"

namespace rematch::cli {
namespace {

constexpr double kWidth = 640;
constexpr double kMargin = 12;
constexpr double kPlotHeight = 300;
/// Distance of charts below each other.
constexpr double kPanelHeight = 180;
/// Sizes of text in units of the picture; the larger one where the picture is narrow. Everything is
/// laid out for it.
constexpr double kText = 14;
constexpr double kNarrowText = 20;
constexpr double kLine = 26;
/// About the width of a character of the larger text.
constexpr double kCharacter = 11;
constexpr int kTitleColumns = 52;
constexpr std::size_t kMaxPoints = 600;
constexpr int kMaxTicks = 5;
constexpr std::size_t kFewPoints = 24;

constexpr std::array<std::string_view, 5> kColours{kBlue, kOrange, "#2f8f5b", "#8b62c9", kGrey};
/// Lines that coincide are told apart by what shows through the gaps of the upper one.
constexpr std::array<std::string_view, 5> kDashes{"", "10 6", "3 5", "14 5 3 5", "6 3"};

std::string_view colour(std::size_t series) { return kColours[series % kColours.size()]; }
std::string_view dash(std::size_t series) { return kDashes[series % kDashes.size()]; }

double text_width(std::string_view text) { return kCharacter * display_width(text); }

std::string text_at(double x, double y, std::string_view text, std::string_view anchor = "start",
                    std::string_view more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y,
                     anchor, more, xml_escaped(text));
}

std::string line(double x1, double y1, double x2, double y2, double opacity,
                 std::string_view more = "") {
  return fmt::format(
      "<path d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\" stroke=\"{}\" stroke-opacity=\"{}\"{}/>\n", x1, y1,
      x2, y2, kGrey, opacity, more);
}

constexpr std::string_view kBold = " font-weight=\"600\"";
constexpr std::string_view kDashed = " stroke-dasharray=\"5 4\"";

struct Tick {
  double value = 0;
  std::string label;
};

std::vector<Tick> ticks(const Range& range, int most, bool whole_numbers) {
  const TickStep step = tick_step(range.span(), most, whole_numbers ? 1 : 0);
  std::vector<Tick> result;
  const auto first = static_cast<std::int64_t>(std::ceil(range.low / step.size));
  const auto last = static_cast<std::int64_t>(std::floor(range.high / step.size));
  for (std::int64_t i = first; i <= last; ++i) {
    const double value = static_cast<double>(i) * step.size;
    result.push_back({value, step.decimals == 0
                                 ? grouped(static_cast<std::int64_t>(std::nearbyint(value)))
                                 : fmt::format("{:.{}f}", value, step.decimals)});
  }
  return result;
}

bool all_whole(const Chart& chart, std::vector<double> Series::*values) {
  return std::all_of(chart.series.begin(), chart.series.end(), [&](const Series& series) {
    return std::all_of((series.*values).begin(), (series.*values).end(),
                       [](double value) { return std::nearbyint(value) == value; });
  });
}

double widest(const std::vector<Tick>& marks) {
  double width = 0;
  for (const Tick& tick : marks) width = std::max(width, text_width(tick.label));
  return width;
}

/// Title and legend; moves `y` below them.
std::string head(std::string_view title, const Chart& chart, double& y) {
  std::string out;
  for (const std::string& words : wrapped(title, kTitleColumns)) {
    y += kLine;
    out += text_at(kMargin, y, cut(words, kTitleColumns), "start", kBold);
  }
  y += 6;
  if (chart.series.size() == 1 && chart.series[0].name.empty()) return out;
  constexpr double kSwatch = 34;
  double x = kMargin;
  y += kLine;
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    const double width = kSwatch + 8 + text_width(chart.series[i].name) + 16;
    if (x > kMargin && x + width > kWidth) {
      x = kMargin;
      y += kLine;
    }
    if (chart.kind == Chart::Kind::bars) {
      out +=
          fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{}\" height=\"12\" fill=\"{}\"/>\n",
                      x, y - 12, kSwatch, colour(i));
    } else {
      const std::string_view pattern = chart.kind == Chart::Kind::lines ? dash(i) : "";
      out += fmt::format(
          "<path d=\"M{:.1f} {:.1f}h{}\" stroke=\"{}\" stroke-width=\"4\" "
          "stroke-dasharray=\"{}\"/>\n",
          x, y - 6, kSwatch, colour(i), pattern.empty() ? "none" : pattern);
    }
    out += text_at(x + kSwatch + 8, y, chart.series[i].name);
    x += width;
  }
  y += 8;
  return out;
}

struct Plot {
  Scale scale;
  double left = 0, right = 0, top = 0, bottom = 0;
  double x(double value) const {
    return left + (right - left) * (value - scale.x.low) / scale.x.span();
  }
  double y(double value) const {
    return bottom - (bottom - top) * (value - scale.y.low) / scale.y.span();
  }
};

std::string line_path(const Series& series, const Plot& plot) {
  const std::size_t stride = (series.x.size() + kMaxPoints - 1) / kMaxPoints;
  std::string path;
  const auto point = [&](std::size_t i) {
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", plot.x(series.x[i]),
                        plot.y(series.y[i]));
  };
  for (std::size_t i = 0; i + 1 < series.x.size(); i += stride) point(i);
  if (!series.x.empty()) point(series.x.size() - 1);
  return path;
}

std::string step_path(const Series& series, const Plot& plot) {
  const std::size_t n = series.x.size();
  const std::size_t bucket = (n + kMaxPoints - 1) / kMaxPoints;
  std::string path;
  for (std::size_t i = 0; i < n; i += bucket) {
    const std::size_t end = std::min(i + bucket, n);
    double highest = series.y[i];
    for (std::size_t k = i; k < end; ++k) highest = std::max(highest, series.y[k]);
    const double y = plot.y(highest);
    path += path.empty() ? fmt::format("M{:.1f} {:.1f}", plot.x(series.x[i]), y)
                         : fmt::format("V{:.1f}", y);
    path += fmt::format("H{:.1f}", plot.x(series.x[std::min(end, n - 1)]));
  }
  return path;
}

std::string curves(const Chart& chart, const Plot& plot) {
  std::string out;
  const bool steps = chart.kind == Chart::Kind::steps;
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    const Series& series = chart.series[i];
    if (series.x.empty()) continue;
    const std::string path = steps ? step_path(series, plot) : line_path(series, plot);
    if (steps && i == 0) {
      out += fmt::format("<path d=\"{}V{:.1f}H{:.1f}Z\" fill=\"{}\" fill-opacity=\"0.2\"/>\n", path,
                         plot.y(plot.scale.y.low), plot.x(series.x.front()), colour(i));
    }
    out += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2.5\"", path,
                       colour(i));
    if (!steps && !dash(i).empty()) {
      out += fmt::format(" stroke-dasharray=\"{}\"", dash(i));
    }
    out += "/>\n";
    if (steps || series.x.size() > kFewPoints) continue;
    // Dots: lines of no length with round ends.
    out += "<path d=\"";
    for (std::size_t k = 0; k < series.x.size(); ++k) {
      out += fmt::format("M{:.1f} {:.1f}h0", plot.x(series.x[k]), plot.y(series.y[k]));
    }
    out +=
        fmt::format("\" stroke=\"{}\" stroke-width=\"8\" stroke-linecap=\"round\"/>\n", colour(i));
  }
  return out;
}

/// Every second one is shaded; a name for which there is no room is left out.
std::string phases(const Chart& chart, const Plot& plot) {
  std::string out;
  const double end = scale_of({&chart, 1}).x.high;
  for (std::size_t i = 0; i < chart.phases.size(); ++i) {
    const Mark& phase = chart.phases[i];
    const double from = plot.x(phase.at);
    const double to = plot.x(i + 1 < chart.phases.size() ? chart.phases[i + 1].at : end);
    if (i % 2 == 1) {
      out += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\" "
          "fill-opacity=\"0.12\"/>\n",
          from, plot.top, to - from, plot.bottom - plot.top, kGrey);
    }
    if (text_width(phase.label) > to - from) continue;
    out += text_at((from + to) / 2, plot.bottom + 2 + kLine, phase.label, "middle");
  }
  return out;
}

std::string levels(const Chart& chart, const Plot& plot) {
  std::string out;
  for (const Mark& level : chart.levels) {
    const double at = plot.y(level.at);
    out += line(plot.left, at, plot.right, at, 1, kDashed);
    out += text_at(plot.right, at - 6, level.label, "end");
  }
  return out;
}

/// Where phases have names, values of x have none.
std::vector<Tick> x_ticks_of(const Chart& chart, const Range& across, int most) {
  return chart.phases.empty() ? ticks(across, most, all_whole(chart, &Series::x))
                              : std::vector<Tick>();
}

/// Axes and curves, the x-axis labelled where `last`; moves `y` below them.
std::string graph(const Chart& chart, const Scale& scale, double height, bool last, double& y) {
  Plot plot;
  plot.scale = scale;
  const std::vector<Tick> y_ticks = ticks(scale.y, kMaxTicks, all_whole(chart, &Series::y));
  // Fewer where the labels are long.
  int most = kMaxTicks;
  std::vector<Tick> x_ticks = x_ticks_of(chart, scale.x, most);
  while (most > 1 && (widest(x_ticks) + 16) * most > kWidth - widest(y_ticks)) {
    x_ticks = x_ticks_of(chart, scale.x, --most);
  }
  plot.left = kMargin + widest(y_ticks) + 8;
  plot.right = kWidth - kMargin - widest(x_ticks) / 2;
  std::string out;
  plot.top = y + 14 + (chart.levels.empty() ? 0 : kLine);
  plot.bottom = plot.top + height;
  for (const Tick& tick : y_ticks) {
    const double at = plot.y(tick.value);
    out += line(plot.left, at, plot.right, at, 0.3);
    out += text_at(plot.left - 8, at + 5, tick.label, "end");
  }
  for (const Tick& tick : x_ticks) {
    const double at = plot.x(tick.value);
    out += line(at, plot.bottom, at, plot.bottom + 6, 1);
    out += text_at(at, plot.bottom + 6 + kLine - 4, tick.label, "middle");
  }
  out += line(plot.left, plot.bottom, plot.right, plot.bottom, 1);
  out += phases(chart, plot) + curves(chart, plot) + levels(chart, plot);
  y = plot.bottom + 6 + kLine;
  if (!last) return out;
  y += kLine;
  return out + text_at((plot.left + plot.right) / 2, y, chart.x_label, "middle");
}

/// Bars lie on their side, so that the names of their categories have room.
std::string bars(const Chart& chart, double& y) {
  constexpr double kBar = 20;
  constexpr double kStep = 26;
  double top = 0;
  double label_width = 0;
  for (const Series& series : chart.series) {
    for (const double value : series.y) {
      top = std::max(top, value);
      label_width = std::max(label_width, text_width(number_text(value)));
    }
  }
  const double longest = kWidth - 2 * kMargin - 8 - label_width;
  std::string out;
  y += kLine;
  out += text_at(kMargin, y,
                 chart.x_label.empty() ? chart.y_label : chart.y_label + ", by " + chart.x_label);
  for (std::size_t category = 0; category < chart.categories.size(); ++category) {
    y += 8;
    for (const std::string& words : wrapped(chart.categories[category], kTitleColumns)) {
      y += kLine;
      out += text_at(kMargin, y, words);
    }
    y += 8;
    for (std::size_t i = 0; i < chart.series.size(); ++i) {
      const double value = chart.series[i].y[category];
      const double length = top > 0 ? longest * value / top : 0;
      out +=
          fmt::format("<rect x=\"{}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" fill=\"{}\"/>\n",
                      kMargin, y, length, kBar, colour(i));
      out += text_at(kMargin + length + 8, y + kBar - 4, number_text(value));
      y += kStep;
    }
  }
  return out;
}

}  // namespace

std::string svg(const Chart& chart) { return svg(chart.title, {&chart, 1}); }

std::string svg(std::string_view title, std::span<const Chart> charts) {
  double y = 0;
  std::string body = head(title, charts[0], y);
  const Scale scale = scale_of(charts);
  const bool several = charts.size() > 1;
  for (const Chart& chart : charts) {
    if (chart.kind == Chart::Kind::bars) {
      body += bars(chart, y);
      continue;
    }
    y += kLine;
    body += several ? text_at(kMargin, y, chart.title + ", " + chart.y_label, "start", kBold)
                    : text_at(kMargin, y, chart.y_label);
    body += graph(chart, scale, several ? kPanelHeight : kPlotHeight, &chart == &charts.back(), y);
  }
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {:.0f}\" role=\"img\" "
             "font-family=\"system-ui, sans-serif\" fill=\"{}\">\n<title>{}</title>\n"
             "<style>text{{font-size:{}px}}@media(max-width:480px){{text{{font-size:{}px}}}}"
             "</style>\n",
             kWidth, y + kMargin, kGrey, xml_escaped(title), kText, kNarrowText) +
         body + "</svg>\n";
}

}  // namespace rematch::cli
