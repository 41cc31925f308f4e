#include "bench/compare/html_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/compare/words.h"
#include "properties/output/chart.h"
#include "properties/output/svg_parts.h"

namespace rematch::compare {
namespace {

constexpr double kMillisecond = 1e6;

std::string mark(std::string_view kind, double left, std::optional<double> width = {}) {
  return fmt::format("<i class=\"{}\" style=\"left:{:.2f}%{}\"></i>", kind, left,
                     width ? fmt::format(";width:{:.2f}%", *width) : "");
}

/// The level before each change and after it, of which there is one at least.
cli::Series levels_of(const HistorySeries& series) {
  cli::Series levels{"level", {}, {}};
  const auto add = [&](std::size_t point, double level) {
    levels.x.push_back(static_cast<double>(series.entries[point]));
    levels.y.push_back(std::exp(level) / kMillisecond);
  };
  for (const LevelChange& c : series.changes) {
    if (levels.x.empty()) add(0, c.before);
    if (c.first > 0) add(c.first - 1, c.before);
    add(c.last, c.after);
  }
  add(series.entries.size() - 1, series.changes.back().after);
  return levels;
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
  cli::Chart chart{.title = pair.name,
                   .x_label = "time, in allocation events",
                   .y_label = "live bytes",
                   .kind = cli::Chart::Kind::steps};
  const auto draw = [&](const std::optional<Timeline>& side, const char* word) {
    chart.series.push_back(
        side ? cli::over_events(
                   fmt::format("{}: peak {}", word, amount_text("peak_bytes", side->peak)),
                   side->live)
             : cli::Series{fmt::format("{}: none", word), {}, {}});
  };
  draw(pair.base, "base");
  draw(pair.head, "new");
  for (const auto& [event, name] : (pair.head ? pair.head : pair.base)->phases) {
    chart.phases.push_back({static_cast<double>(event), name});
  }
  return fmt::format("<figure>{}</figure>\n", cli::svg(chart));
}

std::string history_figure(const HistoryReport& report, const HistorySeries& series) {
  if (series.ns.empty()) return "";
  cli::Chart chart{.title = series.name, .x_label = "commits", .y_label = "milliseconds"};
  cli::Series times{"median of a commit", {}, {}, true};
  for (std::size_t i = 0; i < series.ns.size(); ++i) {
    times.x.push_back(static_cast<double>(series.entries[i]));
    times.y.push_back(series.ns[i] / kMillisecond);
  }
  // The minimum effect fills at most half of the picture.
  chart.least_span =
      *std::max_element(times.y.begin(), times.y.end()) * report.options.min_effect * 2;
  chart.series = {times};
  if (!series.changes.empty()) chart.series.push_back(levels_of(series));
  for (const HistoryEntry& entry : report.entries) {
    chart.categories.push_back(entry.commit.substr(0, 12));
  }
  std::string sentences;
  for (const LevelChange& c : series.changes) {
    chart.edges.push_back(
        {static_cast<double>(series.entries[c.first]), change_text(std::exp(c.after - c.before))});
    sentences +=
        fmt::format("<p class=\"dim\">{}</p>", prose_html(change_sentence(report, series, c)));
  }
  return fmt::format("<figure>{}{}</figure>\n", cli::svg(chart), sentences);
}

}  // namespace rematch::compare
