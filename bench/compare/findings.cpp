#include "bench/compare/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "bench/compare/words.h"

namespace rematch::compare {
namespace {

using Kind = Finding::Kind;

Kind kind_of(const CounterResult& c, const Options& o) {
  switch (c.change) {
    case CounterChange::rose:
      return Kind::regression;
    case CounterChange::fell:
      return Kind::improvement;
    case CounterChange::missing:
      return o.allow_missing ? Kind::note : Kind::regression;
    case CounterChange::unsteady:
      return (c.head_varies && !c.base_varies) || *c.head > *c.base ? Kind::regression : Kind::note;
    case CounterChange::added:
    case CounterChange::same:
      break;
  }
  return Kind::note;
}

void report_presence(const BenchmarkResult& b, const Options& o, std::vector<Finding>& findings) {
  switch (b.presence) {
    case Presence::both:
      return;
    case Presence::base_only:
      findings.push_back({o.allow_missing ? Kind::note : Kind::regression,
                          b.name + " is missing on the new side"});
      return;
    case Presence::head_only:
      findings.push_back({Kind::note, b.name + " is new: the base does not have it"});
      return;
    case Presence::head_failed:
      findings.push_back({Kind::regression, b.name + " failed on the new side: " + b.error});
      return;
    case Presence::base_failed:
      findings.push_back({Kind::note, b.name + " failed on the base: " + b.error});
      return;
    case Presence::both_failed:
      findings.push_back({Kind::note, b.name + " failed on both sides: " + b.error});
      return;
  }
}

/// "; peak in the backward of layer 2 (conv2d)", where the new side says it.
std::string place_of(const Sides& sides, const std::string& name) {
  const auto label_in = [&](const Side& side) {
    for (const ResultFile& file : side.files) {
      const BenchmarkRun* run = file.find(name);
      if (run != nullptr && !run->label.empty()) return run->label;
    }
    return std::string();
  };
  const std::string before = label_in(sides.base);
  const std::string now = label_in(sides.head);
  if (now.empty()) return "";
  return "; " + now + (before.empty() || before == now ? "" : ", before: " + before);
}

/// From here on findings of one counter and amount in one model are one.
constexpr std::size_t kGroup = 3;

struct Changed {
  const BenchmarkResult* benchmark;
  const CounterResult* counter;
};

std::string model_of(const std::string& benchmark) {
  return benchmark.substr(0, benchmark.find('/'));
}

/// "allocations rose by 4 in 17 benchmarks of cifar: plain/float32/cpu from 60 to 64, ...".
std::string group_sentence(const std::vector<Changed>& group, const Sides& sides) {
  constexpr std::size_t kShown = 3;
  const CounterResult& first = *group[0].counter;
  const std::string model = model_of(group[0].benchmark->name);
  const bool rose = *first.head > *first.base;
  std::string text = fmt::format(
      "{} {} by {} in {} benchmarks of {}: ", first.name, rose ? "rose" : "fell",
      amount_text(first.name, rose ? *first.head - *first.base : *first.base - *first.head),
      group.size(), model);
  for (std::size_t i = 0; i < std::min(kShown, group.size()); ++i) {
    const CounterResult& c = *group[i].counter;
    text += fmt::format("{}{} from {} to {}", i == 0 ? "" : ", ",
                        group[i].benchmark->name.substr(model.size() + 1),
                        amount_text(c.name, *c.base), amount_text(c.name, *c.head));
  }
  if (group.size() > kShown) text += fmt::format(", and {} more", group.size() - kShown);
  if (first.name == "peak_bytes") text += place_of(sides, group[0].benchmark->name);
  return text;
}

using Groups = std::map<std::tuple<std::string, std::string, std::int64_t>, std::vector<Changed>>;

/// By counter, model and amount, those that rose or fell.
Groups groups_of(const Comparison& c) {
  Groups groups;
  for (const BenchmarkResult& b : c.benchmarks) {
    if (b.name.find('/') == std::string::npos) continue;
    for (const CounterResult& counter : b.counters) {
      if (counter.change != CounterChange::rose && counter.change != CounterChange::fell) continue;
      groups[{counter.name, model_of(b.name), *counter.head - *counter.base}].push_back(
          {&b, &counter});
    }
  }
  return groups;
}

}  // namespace

std::vector<Finding> findings_of(const Comparison& c) {
  std::vector<Finding> findings;
  const Groups groups = groups_of(c);
  const auto add_counter = [&](const BenchmarkResult& b, const CounterResult& counter) {
    if (counter.base && counter.head) {
      const auto at = groups.find({counter.name, model_of(b.name), *counter.head - *counter.base});
      if (at != groups.end() && at->second.size() >= kGroup) {
        // Told with its first.
        if (at->second[0].benchmark == &b) {
          findings.push_back({kind_of(counter, c.options), group_sentence(at->second, c.sides)});
        }
        return;
      }
    }
    const bool is_peak = counter.name == "peak_bytes" && (counter.change == CounterChange::rose ||
                                                          counter.change == CounterChange::fell);
    findings.push_back(
        {kind_of(counter, c.options),
         counter_sentence(b.name, counter) + (is_peak ? place_of(c.sides, b.name) : "")});
  };
  for (const BenchmarkResult& b : c.benchmarks) {
    report_presence(b, c.options, findings);
    if (b.presence == Presence::base_only || b.presence == Presence::head_only) continue;
    for (const CounterResult& counter : b.counters) {
      if (counter.change != CounterChange::same) add_counter(b, counter);
    }
    if (b.time.verdict == TimeVerdict::slower || b.time.verdict == TimeVerdict::faster) {
      findings.push_back(
          {b.time.verdict == TimeVerdict::slower ? Kind::regression : Kind::improvement,
           time_sentence(b, c.options)});
    }
  }
  std::stable_sort(findings.begin(), findings.end(),
                   [](const Finding& a, const Finding& b) { return a.kind < b.kind; });
  return findings;
}

}  // namespace rematch::compare
