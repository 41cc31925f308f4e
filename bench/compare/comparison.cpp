#include "bench/compare/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <regex>
#include <set>
#include <utility>

#include "bench/compare/findings.h"
#include "bench/compare/input.h"
#include "bench/compare/signed_rank.h"
#include "bench/compare/words.h"

namespace rematch::compare {
namespace {

struct SideCounter {
  std::int64_t highest = 0;
  bool varies = false;
};

std::map<std::string, SideCounter> exact_of(const Side& side, const std::string& name) {
  std::map<std::string, SideCounter> counters;
  for (const ResultFile& file : side.files) {
    const BenchmarkRun* run = file.find(name);
    if (run == nullptr) continue;
    for (const auto& [counter, values] : run->exact) {
      for (const std::int64_t value : values) {
        const auto [at, is_first] = counters.emplace(counter, SideCounter{value, false});
        if (is_first || value == at->second.highest) continue;
        at->second.varies = true;
        at->second.highest = std::max(at->second.highest, value);
      }
    }
  }
  return counters;
}

std::map<std::string, std::vector<double>> other_of(const Side& side, const std::string& name) {
  std::map<std::string, std::vector<double>> counters;
  for (const ResultFile& file : side.files) {
    const BenchmarkRun* run = file.find(name);
    if (run == nullptr) continue;
    for (const auto& [counter, values] : run->other) {
      counters[counter].insert(counters[counter].end(), values.begin(), values.end());
    }
  }
  return counters;
}

template <class Value>
std::set<std::string> names_of(const std::map<std::string, Value>& a,
                               const std::map<std::string, Value>& b) {
  std::set<std::string> names;
  for (const auto& [name, value] : a) names.insert(name);
  for (const auto& [name, value] : b) names.insert(name);
  return names;
}

CounterChange change_of(const CounterResult& c) {
  if (!c.head) return CounterChange::missing;
  if (!c.base) return CounterChange::added;
  if (c.base_varies || c.head_varies) return CounterChange::unsteady;
  if (*c.head == *c.base) return CounterChange::same;
  return *c.head > *c.base ? CounterChange::rose : CounterChange::fell;
}

void compare_counters(const Sides& sides, BenchmarkResult& b) {
  const auto base = exact_of(sides.base, b.name);
  const auto head = exact_of(sides.head, b.name);
  for (const std::string_view counter : kExactCounters) {
    const auto before = base.find(std::string(counter));
    const auto after = head.find(std::string(counter));
    if (before == base.end() && after == head.end()) continue;
    CounterResult c;
    c.name = counter;
    if (before != base.end()) {
      c.base = before->second.highest;
      c.base_varies = before->second.varies;
    }
    if (after != head.end()) {
      c.head = after->second.highest;
      c.head_varies = after->second.varies;
    }
    c.change = change_of(c);
    b.counters.push_back(c);
  }
  const auto other_base = other_of(sides.base, b.name);
  const auto other_head = other_of(sides.head, b.name);
  for (const std::string& name : names_of(other_base, other_head)) {
    OtherCounter c;
    c.name = name;
    if (const auto at = other_base.find(name); at != other_base.end()) c.base = median(at->second);
    if (const auto at = other_head.find(name); at != other_head.end()) c.head = median(at->second);
    b.other.push_back(c);
  }
}

struct SidePresence {
  bool is_there = false;
  std::string error;
};

SidePresence presence_of(const Side& side, const std::string& name) {
  SidePresence p;
  for (const ResultFile& file : side.files) {
    const BenchmarkRun* run = file.find(name);
    if (run == nullptr) continue;
    p.is_there = true;
    if (p.error.empty()) p.error = run->error;
  }
  return p;
}

Presence presence_of(const Sides& sides, BenchmarkResult& b) {
  const SidePresence base = presence_of(sides.base, b.name);
  const SidePresence head = presence_of(sides.head, b.name);
  b.error = head.error.empty() ? base.error : head.error;
  if (!head.is_there) return Presence::base_only;
  if (!base.is_there) return Presence::head_only;
  if (!base.error.empty() && !head.error.empty()) return Presence::both_failed;
  if (!head.error.empty()) return Presence::head_failed;
  if (!base.error.empty()) return Presence::base_failed;
  return Presence::both;
}

std::vector<std::string> names_in(const Sides& sides, const std::string& filter) {
  const std::regex wanted(filter, std::regex::ECMAScript);
  std::vector<std::string> names;
  std::set<std::string> seen;
  for (const Side* side : {&sides.base, &sides.head}) {
    for (const ResultFile& file : side->files) {
      for (const BenchmarkRun& run : file.benchmarks) {
        if (!seen.insert(run.name).second) continue;
        if (filter.empty() || std::regex_search(run.name, wanted)) names.push_back(run.name);
      }
    }
  }
  if (names.empty()) {
    throw InputError(fmt::format("--filter: no benchmark's name matches \"{}\"", filter));
  }
  return names;
}

/// The position of an estimate in the family of tests, and the estimate.
struct Judged {
  TimeResult* time;
  CentreOfDifferences centre;
};

void judge_times(Comparison& c) {
  const Options& o = c.options;
  std::vector<Judged> judged;
  for (BenchmarkResult& b : c.benchmarks) {
    b.time.base_ns = median_time(c.sides.base, b.name, o.clock);
    b.time.head_ns = median_time(c.sides.head, b.name, o.clock);
    if (!o.judge_time || c.time_refused() || b.presence != Presence::both) continue;
    // Counted only.
    if (!b.time.base_ns && !b.time.head_ns) continue;
    const std::vector<double> ratios = log_ratios(c.sides, b.name, o.clock);
    b.time.verdict = TimeVerdict::unsure;
    b.time.pairs = static_cast<int>(ratios.size());
    judged.push_back({&b.time, CentreOfDifferences(ratios)});
  }
  // The same distance on both sides of 1, so that swapping the sides swaps the verdicts.
  const double edge = std::log1p(o.min_effect);
  std::vector<double> p;
  for (const Judged& j : judged) {
    p.push_back(j.centre.p_above(edge));
    p.push_back(j.centre.p_below(-edge));
  }
  const std::vector<double> adjusted = holm(p);
  const double alpha = o.alpha / o.looks;
  // Simultaneous over the looks: SAME may not become easier by looking often.
  const double level = 1 - (1 - o.level) / o.looks;
  for (std::size_t i = 0; i < judged.size(); ++i) {
    TimeResult& t = *judged[i].time;
    const CentreOfDifferences& centre = judged[i].centre;
    if (t.pairs == 0) continue;
    const CentreOfDifferences::Interval interval = centre.interval(level);
    t.ratio = std::exp(centre.estimate());
    t.low = std::exp(interval.low);
    t.high = std::exp(interval.high);
    t.p_slower = std::min(1.0, adjusted[2 * i] * o.looks);
    t.p_faster = std::min(1.0, adjusted[2 * i + 1] * o.looks);
    if (adjusted[2 * i] <= alpha) {
      t.verdict = TimeVerdict::slower;
    } else if (adjusted[2 * i + 1] <= alpha) {
      t.verdict = TimeVerdict::faster;
    } else if (interval.low >= -edge && interval.high <= edge) {
      t.verdict = TimeVerdict::same;
    }
  }
  if (!judged.empty()) {
    c.fewest_pairs = fewest_differences(alpha / static_cast<double>(p.size()));
    for (const Judged& j : judged) c.most_pairs = std::max(c.most_pairs, j.time->pairs);
  }
}

void take_notes(Comparison& c) {
  if (!c.options.judge_time) return;
  for (const FingerprintDifference& d : c.sides.differences) c.notes.push_back(refusal_sentence(d));
  if (c.time_refused()) {
    c.notes.push_back("exact counters do not depend on the machine and are compared nevertheless");
    return;
  }
  if (c.most_pairs < c.fewest_pairs) {
    c.notes.push_back(
        fmt::format("there {} {}; among {} no change of time can be found with fewer than {}",
                    c.most_pairs == 1 ? "is" : "are", counted(c.most_pairs, "pair"),
                    counted(c.judged(), "benchmark"), c.fewest_pairs));
  }
  if (c.sides.by_repetition) {
    c.notes.push_back(
        "each side is a single run, so repetitions are paired by their index; what befell a run "
        "as a whole (a busy machine, where its memory lay) cannot be told from a change of the "
        "program: for verdicts to rely on, run both in turn several times, as ci/compare does");
  }
  if (!c.sides.base.files.front().has_fingerprint) {
    c.notes.push_back(
        "the files carry no fingerprint (rematch_... in their context); host name, number of CPUs "
        "and build type of the library agree");
  }
}

}  // namespace

int Comparison::count(TimeVerdict verdict) const {
  return static_cast<int>(
      std::count_if(benchmarks.begin(), benchmarks.end(),
                    [&](const BenchmarkResult& b) { return b.time.verdict == verdict; }));
}

int Comparison::counted_only() const {
  return static_cast<int>(
      std::count_if(benchmarks.begin(), benchmarks.end(), [&](const BenchmarkResult& b) {
        return b.presence == Presence::both && !b.time.base_ns && !b.time.head_ns;
      }));
}

int Comparison::judged() const {
  return static_cast<int>(benchmarks.size()) - count(TimeVerdict::not_compared);
}

bool counts_agree(const BenchmarkResult& benchmark) {
  return std::all_of(benchmark.counters.begin(), benchmark.counters.end(),
                     [](const CounterResult& c) { return c.change == CounterChange::same; });
}

int Comparison::count(Finding::Kind kind) const {
  return static_cast<int>(std::count_if(findings.begin(), findings.end(),
                                        [&](const Finding& f) { return f.kind == kind; }));
}

int Comparison::exit_status() const {
  if (count(Finding::Kind::regression) > 0) return 1;
  return time_refused() || count(TimeVerdict::unsure) > 0 ? 3 : 0;
}

Comparison compare(Sides sides, const Options& options) {
  Comparison c;
  c.options = options;
  c.sides = std::move(sides);
  const ClockChoice choice = choose_clock(c.sides);
  if (options.clock == Clock::automatic) c.options.clock = choice.clock;
  for (const std::string& name : names_in(c.sides, options.filter)) {
    BenchmarkResult& b = c.benchmarks.emplace_back();
    b.name = name;
    b.presence = presence_of(c.sides, b);
    compare_counters(c.sides, b);
  }
  judge_times(c);
  c.findings = findings_of(c);
  take_notes(c);
  const bool was_chosen = options.clock == Clock::automatic && c.options.clock == Clock::cpu;
  if (options.judge_time && was_chosen) c.notes.push_back(clock_sentence(choice.share));
  return c;
}

}  // namespace rematch::compare
