#include "bench/compare/html_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/compare/words.h"
#include "properties/output/svg_parts.h"

namespace rematch::compare {
namespace {

constexpr double kWide = 1000;
constexpr double kHigh = 100;
/// More events than this are drawn as the highest of each group.
constexpr std::size_t kMostColumns = 400;

std::string mark(std::string_view kind, double left, std::optional<double> width = {}) {
  return fmt::format("<i class=\"{}\" style=\"left:{:.2f}%{}\"></i>", kind, left,
                     width ? fmt::format(";width:{:.2f}%", *width) : "");
}

std::string step_path(const Timeline& timeline, std::size_t events, std::int64_t top) {
  const std::size_t group = (timeline.live.size() + kMostColumns - 1) / kMostColumns;
  std::string path;
  for (std::size_t i = 0; i < timeline.live.size(); i += group) {
    const std::size_t end = std::min(i + group, timeline.live.size());
    const std::int64_t highest =
        *std::max_element(timeline.live.begin() + static_cast<std::ptrdiff_t>(i),
                          timeline.live.begin() + static_cast<std::ptrdiff_t>(end));
    const double y = kHigh - (kHigh - 4) * static_cast<double>(highest) / static_cast<double>(top);
    const auto x = [&](std::size_t event) {
      return kWide * static_cast<double>(event) / static_cast<double>(events);
    };
    path += fmt::format("{}{:.1f}H{:.1f}", path.empty() ? "M0 " : "V", y, x(end));
  }
  return path;
}

/// Where a series lies in its picture.
struct Frame {
  double low;
  double high;
  std::size_t commits;
  double x(std::size_t commit) const {
    return commits < 2
               ? kWide / 2
               : 10 + (kWide - 20) * static_cast<double>(commit) / static_cast<double>(commits - 1);
  }
  double y(double ns) const { return 92 - 84 * (ns - low) / (high - low); }
};

Frame frame_of(const HistoryReport& report, const HistorySeries& series) {
  const auto [low, high] = std::minmax_element(series.ns.begin(), series.ns.end());
  // A flat series must look flat: at least the minimum effect fills half of the picture.
  const double least = *high * report.options.min_effect * 2;
  const double missing = std::max(0.0, least - (*high - *low)) / 2;
  return {*low - missing, *high + missing, report.entries.size()};
}

std::string level_lines(const HistorySeries& series, const Frame& frame) {
  std::string path;
  const auto line = [&](std::size_t from, double before, std::size_t to, double after) {
    path += fmt::format("M{:.1f} {:.1f}L{:.1f} {:.1f}", frame.x(series.entries[from]),
                        frame.y(std::exp(before)), frame.x(series.entries[to]),
                        frame.y(std::exp(after)));
  };
  std::size_t from = 0;
  for (const LevelChange& c : series.changes) {
    if (c.first > 0) line(from, c.before, c.first - 1, c.before);
    if (c.shape == LevelChange::Shape::drift && c.last > c.first) {
      line(c.first - 1, c.before, c.last, c.after);
    }
    from = c.last;
  }
  const std::size_t end = series.entries.size() - 1;
  if (!series.changes.empty() && from < end) {
    line(from, series.changes.back().after, end, series.changes.back().after);
  }
  return path;
}

}  // namespace

std::string escaped(std::string_view text) { return cli::xml_escaped(text); }

std::string name_html(std::string_view name) {
  std::string out;
  for (const char c : escaped(name)) {
    out += c;
    if (c == '/') out += "<wbr>";
  }
  return out;
}

std::string prose_html(std::string_view text) {
  std::string out = escaped(text);
  for (std::size_t at = out.find(" %"); at != std::string::npos; at = out.find(" %", at + 1)) {
    out.replace(at, 1, "&#160;");
  }
  return out;
}

double ForestScale::at(double ratio) const {
  const double share = std::log(ratio) / std::log(top);
  return 50 + 50 * std::clamp(share, -1.0, 1.0);
}

ForestScale forest_scale(const Comparison& c) {
  const double edge = 1 + c.options.min_effect;
  double widest = std::max(3 * std::log(edge), 0.01);
  for (const BenchmarkResult& b : c.benchmarks) {
    if (!b.time.ratio) continue;
    widest = std::max(widest, 1.1 * std::fabs(std::log(*b.time.ratio)));
    for (const double end : {b.time.low, b.time.high}) {
      if (end > 0 && !std::isinf(end)) widest = std::max(widest, 1.1 * std::fabs(std::log(end)));
    }
  }
  // One wild interval must not flatten the others.
  return {std::exp(std::min(widest, std::log(2.0))), edge};
}

std::string forest_axis(const ForestScale& s) {
  std::string out = "<div class=\"axis\" aria-hidden=\"true\">";
  for (const double ratio : {1 / s.top, 1.0, s.top}) {
    out += fmt::format("<span style=\"left:{:.2f}%\">{}</span>", s.at(ratio),
                       ratio == 1.0 ? "0 %" : change_text(ratio));
  }
  return out + "</div>\n";
}

std::string forest_row(const BenchmarkResult& b, const ForestScale& s) {
  const TimeResult& t = b.time;
  const std::string word = verdict_word(b);
  const std::string style = t.verdict == TimeVerdict::not_compared ? "none" : word;
  std::string out =
      fmt::format("<div class=\"row\"><span>{}</span><span class=\"word {}\">{}</span>",
                  name_html(b.name), style, word);
  std::string numbers;
  if (t.ratio) {
    const double low = s.at(t.low > 0 ? t.low : 1e-9);
    const double high = s.at(std::isinf(t.high) ? 1e9 : t.high);
    out += fmt::format("<div class=\"forest {}\" role=\"img\" aria-label=\"{}\">{}{}{}{}</div>",
                       style, interval_text(t.low, t.high),
                       mark("band", s.at(1 / s.edge), s.at(s.edge) - s.at(1 / s.edge)),
                       mark("one", 50), mark("bar", low, high - low), mark("dot", s.at(*t.ratio)));
    numbers = fmt::format("{} ({})<br>", change_text(*t.ratio), interval_text(t.low, t.high));
  }
  if (t.base_ns && t.head_ns) {
    numbers += fmt::format("{}, now {}; {}", time_text(*t.base_ns), time_text(*t.head_ns),
                           counted(t.pairs, "pair"));
  }
  return out + "<span class=\"number\">" + numbers + "</span></div>\n";
}

std::string timeline_figure(const TimelinePair& pair) {
  std::size_t events = 1;
  std::int64_t top = 1;
  for (const auto& side : {pair.base, pair.head}) {
    if (!side) continue;
    events = std::max(events, side->live.size());
    top = std::max(top, side->peak);
  }
  std::string paths;
  std::string keys;
  const auto draw = [&](const std::optional<Timeline>& side, const char* style, const char* word) {
    if (!side) {
      keys += fmt::format(" <span class=\"dim\">{}: none</span>", word);
      return;
    }
    paths += fmt::format("<path class=\"{}\" d=\"{}\"/>", style, step_path(*side, events, top));
    keys += fmt::format(" <span class=\"dim\"><i class=\"key {}\"></i>{}: peak {}</span>", style,
                        word, amount_text("peak_bytes", side->peak));
  };
  draw(pair.base, "base", "base");
  draw(pair.head, "new", "new");
  std::string phases;
  const Timeline& shown = pair.head ? *pair.head : *pair.base;
  for (std::size_t i = 0; i < shown.phases.size(); ++i) {
    const double left =
        100 * static_cast<double>(shown.phases[i].first) / static_cast<double>(events);
    // Labels that would lie upon each other are left out.
    if (i > 0 && left > 85) continue;
    phases += fmt::format("<span style=\"left:{:.1f}%;transform:none\">{}</span>", left,
                          escaped(shown.phases[i].second));
    if (phases.size() > 600) break;
  }
  return fmt::format(
      "<figure><figcaption><b>{}</b>{}</figcaption>\n<svg viewBox=\"0 0 {} {}\" "
      "preserveAspectRatio=\"none\" role=\"img\" aria-label=\"bytes over the step\">{}</svg>\n"
      "<div class=\"axis\" style=\"margin:0\">{}</div></figure>\n",
      name_html(pair.name), keys, kWide, kHigh, paths, phases);
}

std::string history_figure(const HistoryReport& report, const HistorySeries& series) {
  if (series.ns.empty()) return "";
  const Frame frame = frame_of(report, series);
  std::string dots;
  for (std::size_t i = 0; i < series.ns.size(); ++i) {
    dots += fmt::format("M{:.1f} {:.1f}h0", frame.x(series.entries[i]), frame.y(series.ns[i]));
  }
  std::string edges;
  std::string sentences;
  for (const LevelChange& c : series.changes) {
    edges +=
        fmt::format("<path class=\"edge {}\" d=\"M{:.1f} 0V{}\"/>",
                    c.after > c.before ? "bad" : "good", frame.x(series.entries[c.first]), kHigh);
    sentences += fmt::format("<br>{}", prose_html(change_sentence(report, series, c)));
  }
  const std::string& from = report.entries[series.entries.front()].commit;
  const std::string& to = report.entries[series.entries.back()].commit;
  return fmt::format(
      "<figure><figcaption><b>{}</b> <span class=\"dim number\">{} .. {}</span>{}</figcaption>\n"
      "<svg class=\"small\" viewBox=\"0 0 {} {}\" preserveAspectRatio=\"none\" role=\"img\" "
      "aria-label=\"times over commits\">{}<path class=\"level\" d=\"{}\"/>"
      "<path class=\"dots\" d=\"{}\"/></svg>\n"
      "<div class=\"axis\" style=\"margin:0\"><span style=\"left:0\">{}</span>"
      "<span style=\"left:100%\">{}</span></div></figure>\n",
      name_html(series.name), time_text(*std::min_element(series.ns.begin(), series.ns.end())),
      time_text(*std::max_element(series.ns.begin(), series.ns.end())), sentences, kWide, kHigh,
      edges, level_lines(series, frame), dots, escaped(from.substr(0, 12)),
      escaped(to.substr(0, 12)));
}

}  // namespace rematch::compare
