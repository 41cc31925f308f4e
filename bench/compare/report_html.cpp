#include <fmt/format.h>

#include <cmath>

#include "bench/compare/html_charts.h"
#include "bench/compare/html_style.h"
#include "bench/compare/report.h"
#include "bench/compare/words.h"

namespace rematch::compare {
namespace {

std::string heading(std::string_view text) { return fmt::format("<h2>{}</h2>\n", text); }

std::string verdict_box(const Comparison& c) {
  const int status = c.exit_status();
  const char* style = status == 1 ? " regression" : status == 3 ? " unsure" : "";
  std::string out = fmt::format(
      "<header class=\"verdict{}\"><h1>{}</h1>\n<p><code>{}</code> against <code>{}</code>, {}: "
      "{}</p></header>\n",
      style, escaped(headline(c)), escaped(side_text(c.sides.head)),
      escaped(side_text(c.sides.base)),
      counted(static_cast<std::int64_t>(c.benchmarks.size()), "benchmark"), verdict_counts(c));
  for (const std::string& note : c.notes) {
    out += fmt::format("<p class=\"dim\">Note: {}</p>\n", prose_html(note));
  }
  return out;
}

std::string list_of(const Comparison& c, Finding::Kind kind, const char* title) {
  std::string items;
  for (const Finding& f : c.findings) {
    if (f.kind == kind) items += fmt::format("<li>{}</li>\n", prose_html(f.text));
  }
  return items.empty() ? "" : heading(title) + "<ul>\n" + items + "</ul>\n";
}

std::string times(const Comparison& c) {
  if (!c.options.judge_time) return "";
  const ForestScale scale = forest_scale(c);
  std::string loud;
  std::string quiet;
  std::string counted_rows;
  int same = 0;
  int only_counted = 0;
  for (const std::size_t i : rows_in_order(c)) {
    const BenchmarkResult& b = c.benchmarks[i];
    const bool is_quiet = b.time.verdict == TimeVerdict::same;
    const bool is_counted = b.presence == Presence::both && !b.time.base_ns && !b.time.head_ns;
    same += is_quiet ? 1 : 0;
    only_counted += is_counted ? 1 : 0;
    (is_quiet ? quiet : is_counted ? counted_rows : loud) += forest_row(b, scale);
  }
  std::string out = heading("Time");
  out += fmt::format(
      "<p class=\"dim\">{} time, new over base, with the {:.0f} % interval. Within the grey band "
      "of "
      "&plusmn;{:.4g} % is the same.</p>\n",
      c.options.clock == Clock::cpu ? "CPU" : "Real", c.options.level * 100,
      c.options.min_effect * 100);
  out += forest_axis(scale) + loud;
  if (same > 0) {
    out += fmt::format("<details{}><summary>{} the same</summary>\n{}</details>\n",
                       loud.empty() ? " open" : "",
                       same == 1 ? "1 is" : fmt::format("{} are", same), quiet);
  }
  if (only_counted > 0) {
    out += fmt::format("<details><summary>{} counted, not timed</summary>\n{}</details>\n",
                       only_counted == 1 ? "1 was" : fmt::format("{} were", only_counted),
                       counted_rows);
  }
  return out;
}

std::string difference_text(const CounterResult& c) {
  if (!c.base || !c.head) return "";
  const std::int64_t by = *c.head - *c.base;
  const std::string amount = (by < 0 ? "" : "+") + amount_text(c.name, by);
  if (*c.base == 0 || by == 0) return by == 0 ? "" : amount;
  return fmt::format("{} ({})", amount, exact_change_text(*c.base, *c.head));
}

std::string counter_row(const std::string& benchmark, const CounterResult& c) {
  const auto amount = [&](const std::optional<std::int64_t>& value) {
    return value ? amount_text(c.name, *value) : std::string("none");
  };
  const char* style = c.change == CounterChange::rose   ? "rose"
                      : c.change == CounterChange::fell ? "fell"
                                                        : "";
  return fmt::format(
      "<tr><td>{}</td><td><code>{}</code></td><td class=\"amount\" data-title=\"base\">{}</td>"
      "<td class=\"amount\" data-title=\"new\">{}</td><td class=\"amount {}\">{}</td></tr>\n",
      name_html(benchmark), c.name, amount(c.base), amount(c.head), style, difference_text(c));
}

std::string counter_table(const std::string& rows) {
  return "<div class=\"scroll\"><table class=\"phone\"><thead><tr><th>benchmark</th>"
         "<th>counter</th><th class=\"amount\">base</th><th class=\"amount\">new</th>"
         "<th class=\"amount\">difference</th></tr></thead><tbody>\n" +
         rows + "</tbody></table></div>\n";
}

std::string counters(const Comparison& c) {
  std::string changed;
  std::string all;
  int total = 0;
  for (const BenchmarkResult& b : c.benchmarks) {
    for (const CounterResult& counter : b.counters) {
      ++total;
      const std::string row = counter_row(b.name, counter);
      all += row;
      if (counter.change != CounterChange::same) changed += row;
    }
  }
  if (total == 0) return "";
  std::string out = heading("Bytes and counts");
  out += changed.empty()
             ? fmt::format("<p>{} agree exactly.</p>\n",
                           total == 1 ? "1 counter" : fmt::format("All {} counters", total))
             : counter_table(changed);
  return out + fmt::format("<details><summary>All {}</summary>\n{}</details>\n",
                           counted(total, "exact counter"), counter_table(all));
}

std::string other_counters(const Comparison& c) {
  std::string rows;
  for (const BenchmarkResult& b : c.benchmarks) {
    for (const OtherCounter& o : b.other) {
      const auto number = [](const std::optional<double>& value) {
        return value ? number_text(*value) : std::string("none");
      };
      rows += fmt::format(
          "<tr><td>{}</td><td><code>{}</code></td><td class=\"amount\" data-title=\"base\">{}</td>"
          "<td class=\"amount\" data-title=\"new\">{}</td></tr>\n",
          name_html(b.name), escaped(o.name), number(o.base), number(o.head));
    }
  }
  if (rows.empty()) return "";
  return "<details><summary>Other counters, which are not judged</summary>\n<div class=\"scroll\">"
         "<table class=\"phone\"><thead><tr><th>benchmark</th><th>counter</th>"
         "<th class=\"amount\">base</th><th class=\"amount\">new</th></tr></thead><tbody>\n" +
         rows + "</tbody></table></div></details>\n";
}

std::string figures(const std::string& drawn) {
  return drawn.empty() ? "" : "<div class=\"figures\">\n" + drawn + "</div>\n";
}

std::string timelines(const TimelinePairs* pairs) {
  if (pairs == nullptr || pairs->empty()) return "";
  std::string out = heading("Bytes over a step") +
                    "<p class=\"dim\">Live bytes, from allocation to allocation; both sides to the "
                    "same scale.</p>\n";
  std::string changed;
  std::string quiet;
  int same = 0;
  for (const TimelinePair& pair : *pairs) {
    const bool is_same = pair.base && pair.head && pair.base->live == pair.head->live;
    same += is_same ? 1 : 0;
    (is_same ? quiet : changed) += timeline_figure(pair);
  }
  out += figures(changed);
  if (same > 0) {
    out += fmt::format("<details><summary>{} the same on both sides</summary>\n{}</details>\n",
                       same == 1 ? "1 is" : fmt::format("{} are", same), figures(quiet));
  }
  return out;
}

std::string history(const HistoryReport* report) {
  if (report == nullptr) return "";
  std::string changed;
  std::string quiet;
  int flat = 0;
  for (const HistorySeries& s : report->series) {
    flat += s.changes.empty() ? 1 : 0;
    (s.changes.empty() ? quiet : changed) += history_figure(*report, s);
  }
  std::string out = heading("History");
  out += fmt::format("<p>{}</p>\n", escaped(history_headline(*report)));
  std::string items;
  for (const Finding& f : report->findings)
    items += fmt::format("<li>{}</li>\n", prose_html(f.text));
  if (!items.empty()) out += "<ul>\n" + items + "</ul>\n";
  out += figures(changed);
  if (flat > 0) {
    out += fmt::format("<details><summary>{} without a change</summary>\n{}</details>\n",
                       counted(flat, "benchmark"), figures(quiet));
  }
  return out;
}

std::string machine(const Comparison& c) {
  std::string items;
  for (const auto& [name, value] : c.sides.base.files.front().fingerprint) {
    items += fmt::format("<li><code>{}</code> {}</li>\n", escaped(name), escaped(value));
  }
  return fmt::format(
      "<details><summary>How this was judged</summary>\n<p>Each pair of neighbouring runs gives "
      "one "
      "ratio of times. A benchmark is SLOWER or FASTER when Wilcoxon's signed-rank test says that "
      "the ratios lie beyond the band, after Holm's correction for all benchmarks of the run: a "
      "program compared with itself gets a false alarm in at most {:.4g} % of all runs. It is SAME "
      "when the interval lies within the band, else UNSURE. Exact counters are compared by "
      "equality.</p>\n<ul>\n{}</ul></details>\n",
      c.options.alpha * 100, items);
}

}  // namespace

std::string html_report(const Comparison& c, const Extras& extras) {
  std::string out =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
  out += fmt::format("<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n",
                     escaped(headline(c)), kHtmlStyle);
  out += verdict_box(c);
  out += list_of(c, Finding::Kind::regression, "Regressions");
  out += list_of(c, Finding::Kind::improvement, "Improvements");
  out += list_of(c, Finding::Kind::note, "Also changed");
  out += times(c);
  out += counters(c);
  out += timelines(extras.timelines);
  out += history(extras.history);
  out += heading("Details") + other_counters(c) + machine(c);
  return out + "</body>\n</html>\n";
}

}  // namespace rematch::compare
