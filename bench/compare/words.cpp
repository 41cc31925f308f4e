#include "bench/compare/words.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <utility>

#include "properties/output/terminal.h"

namespace rematch::compare {
namespace {

/// A share in percent without its sign: one decimal.
std::string percent(double share) {
  const double size = std::fabs(share) * 100;
  return size >= 999.5 ? fmt::format("{:.0f}", size) : fmt::format("{:.1f}", size);
}

/// "2", "2.5".
std::string band_text(const Options& options) {
  return fmt::format("{:.4g}", options.min_effect * 100);
}

}  // namespace

std::string change_text(double ratio) {
  const std::string digits = percent(ratio - 1);
  return (ratio < 1 && digits != "0.0" ? "-" : "+") + digits + " %";
}

std::string exact_change_text(std::int64_t before, std::int64_t after) {
  const double share = static_cast<double>(after - before) / static_cast<double>(before);
  const double size = std::fabs(share) * 100;
  if (size >= 0.05) return change_text(1 + share);
  // A change must not read as none: two significant digits.
  const int decimals = 1 - static_cast<int>(std::floor(std::log10(size)));
  return fmt::format("{}{:.{}f} %", share < 0 ? "-" : "+", size, decimals);
}

std::string interval_text(double low, double high) {
  if (!(low > 0) || std::isinf(high)) return "any";
  const std::string first = change_text(low);
  return first.substr(0, first.size() - 2) + " .. " + change_text(high);
}

std::string time_text(double ns) {
  static constexpr std::array kUnits{"ns", "us", "ms", "s"};
  std::size_t unit = 0;
  // 999.95 would be printed as 1000.
  while (ns >= 999.5 && unit + 1 < kUnits.size()) {
    ns /= 1000;
    ++unit;
  }
  const int digits = ns < 9.995 ? 2 : ns < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f} {}", ns, digits, kUnits[unit]);
}

std::string amount_text(std::string_view counter, std::int64_t value) {
  return cli::grouped(value) + (counts_bytes(counter) ? " B" : "");
}

std::string number_text(double value) {
  if (std::fabs(value) < 1e15 && value == std::floor(value)) {
    return cli::grouped(static_cast<std::int64_t>(value));
  }
  return fmt::format("{:.6g}", value);
}

std::string counted(std::int64_t n, std::string_view noun) {
  return fmt::format("{} {}{}", cli::grouped(n), noun, n == 1 ? "" : "s");
}

std::string side_text(const Side& side) {
  if (!side.label.empty()) return side.label;
  if (side.commit.empty()) return "?";
  return side.commit.substr(0, 12) + (side.dirty ? "+changes" : "");
}

std::string counter_sentence(const std::string& benchmark, const CounterResult& c) {
  const std::string name = c.name + " of " + benchmark;
  const auto amount = [&](std::int64_t value) { return amount_text(c.name, value); };
  switch (c.change) {
    case CounterChange::missing:
      return name + " is missing on the new side; the base has " + amount(*c.base);
    case CounterChange::added:
      return name + " is new: " + amount(*c.head);
    case CounterChange::unsteady:
      return fmt::format("{} differs between repetitions of {}: base{} {}, new{} {}", name,
                         c.head_varies && c.base_varies ? "both sides"
                         : c.head_varies                ? "the new side"
                                                        : "the base",
                         c.base_varies ? " up to" : "", amount(*c.base),
                         c.head_varies ? " up to" : "", amount(*c.head));
    case CounterChange::same:
      return name + " is the same: " + amount(*c.base);
    case CounterChange::rose:
    case CounterChange::fell:
      break;
  }
  const bool rose = c.change == CounterChange::rose;
  const std::string share = *c.base == 0 ? "" : " (" + exact_change_text(*c.base, *c.head) + ")";
  return fmt::format("{} {} by {}{}, from {} to {}", name, rose ? "rose" : "fell",
                     amount(rose ? *c.head - *c.base : *c.base - *c.head), share, amount(*c.base),
                     amount(*c.head));
}

std::string time_sentence(const BenchmarkResult& b, const Options& options) {
  const TimeResult& t = b.time;
  return fmt::format("{} is {} by {} % ({:.0f} % interval {}, {}): {}, now {}", b.name,
                     t.verdict == TimeVerdict::slower ? "slower" : "faster", percent(*t.ratio - 1),
                     options.level * 100, interval_text(t.low, t.high), counted(t.pairs, "pair"),
                     time_text(*t.base_ns), time_text(*t.head_ns));
}

std::string unsure_reason(const TimeResult& t, const Comparison& c) {
  if (t.pairs == 0) return "no pair has a time on both sides";
  const double edge = 1 + c.options.min_effect;
  const bool looks_slower = t.low > edge;
  const bool looks_faster = t.high < 1 / edge;
  if (looks_slower || looks_faster) {
    return fmt::format("looks {}, but among {} that is not yet certain",
                       looks_slower ? "slower" : "faster", counted(c.judged(), "timed benchmark"));
  }
  if (!(t.low > 0) || std::isinf(t.high)) return "too few pairs for an interval";
  const bool across_low = t.low < 1 / edge && t.high >= 1 / edge;
  const bool across_high = t.high > edge && t.low <= edge;
  return fmt::format("its interval reaches across {}{} %",
                     across_low && across_high ? "±"
                     : across_low              ? "-"
                                               : "+",
                     band_text(c.options));
}

std::string verdict_counts(const Comparison& c) {
  std::string text;
  for (const auto& [verdict, word] :
       {std::pair{TimeVerdict::slower, "slower"}, std::pair{TimeVerdict::faster, "faster"},
        std::pair{TimeVerdict::unsure, "unsure"}, std::pair{TimeVerdict::same, "same"}}) {
    if (const int n = c.count(verdict); n > 0) {
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", n, word);
    }
  }
  if (text.empty()) text = "no time compared";
  if (const int n = c.counted_only(); n > 0 && !c.time_refused() && c.options.judge_time) {
    text += fmt::format("; {} counted, not timed", n);
  }
  return text;
}

std::string verdict_word(const BenchmarkResult& b) {
  switch (b.presence) {
    case Presence::both:
      if (b.time.verdict != TimeVerdict::not_compared || b.counters.empty()) {
        return std::string(to_string(b.time.verdict));
      }
      return counts_agree(b) ? "EQUAL" : "CHANGED";
    case Presence::base_only:
      return "MISSING";
    case Presence::head_only:
      return "NEW";
    case Presence::head_failed:
    case Presence::base_failed:
    case Presence::both_failed:
      break;
  }
  return "FAILED";
}

std::string headline(const Comparison& c) {
  const int regressions = c.count(Finding::Kind::regression);
  const int improvements = c.count(Finding::Kind::improvement);
  const std::string better = improvements == 0 ? "" : ", " + counted(improvements, "improvement");
  if (regressions > 0) return "REGRESSION: " + counted(regressions, "regression") + better;
  if (c.time_refused()) return "UNSURE: times are not comparable" + better;
  if (c.exit_status() == 3) {
    return fmt::format("UNSURE: no regression was found, but {} could not be judged{}",
                       counted(c.count(TimeVerdict::unsure), "time"), better);
  }
  return "NO REGRESSION" + (better.empty() ? "" : ": " + better.substr(2));
}

std::string clock_sentence(double share) {
  return fmt::format(
      "the programs had a core for {:.0f} % of their time, so CPU times are compared; --clock real "
      "compares what the clock on the wall says",
      share * 100);
}

std::string refusal_sentence(const FingerprintDifference& d) {
  const auto value = [](const std::string& text) {
    return text.empty() ? std::string("none") : "\"" + text + "\"";
  };
  return fmt::format("time is not compared: {} differs: expected {} as in {}, got {} in {}",
                     d.field, value(d.expected), d.expected_file, value(d.got), d.got_file);
}

std::string_view to_string(TimeVerdict verdict) {
  switch (verdict) {
    case TimeVerdict::same:
      return "SAME";
    case TimeVerdict::faster:
      return "FASTER";
    case TimeVerdict::slower:
      return "SLOWER";
    case TimeVerdict::unsure:
      return "UNSURE";
    case TimeVerdict::not_compared:
      break;
  }
  return "-";
}

}  // namespace rematch::compare
