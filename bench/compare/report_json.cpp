#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "bench/compare/report.h"
#include "bench/compare/words.h"

namespace rematch::compare {
namespace {

using Json = nlohmann::ordered_json;

template <class Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json(nullptr);
}

/// Six significant digits: more would differ from one mathematical library to the next.
Json rounded(double value) { return std::stod(fmt::format("{:.6g}", value)); }

Json rounded(const std::optional<double>& value) { return value ? rounded(*value) : Json(nullptr); }

std::string_view to_string(CounterChange change) {
  switch (change) {
    case CounterChange::same:
      return "same";
    case CounterChange::rose:
      return "rose";
    case CounterChange::fell:
      return "fell";
    case CounterChange::unsteady:
      return "unsteady";
    case CounterChange::missing:
      return "missing";
    case CounterChange::added:
      break;
  }
  return "added";
}

std::string_view to_string(Presence presence) {
  switch (presence) {
    case Presence::both:
      return "both";
    case Presence::base_only:
      return "base_only";
    case Presence::head_only:
      return "new_only";
    case Presence::head_failed:
      return "new_failed";
    case Presence::base_failed:
      return "base_failed";
    case Presence::both_failed:
      break;
  }
  return "both_failed";
}

std::string_view to_string(Finding::Kind kind) {
  switch (kind) {
    case Finding::Kind::regression:
      return "regression";
    case Finding::Kind::improvement:
      return "improvement";
    case Finding::Kind::note:
      break;
  }
  return "note";
}

Json time_json(const TimeResult& t) {
  Json j;
  j["verdict"] = compare::to_string(t.verdict);
  j["pairs"] = t.pairs;
  j["base_ns"] = rounded(t.base_ns);
  j["new_ns"] = rounded(t.head_ns);
  j["ratio"] = rounded(t.ratio);
  // JSON has no infinity.
  const bool bounded = t.ratio && t.low > 0 && !std::isinf(t.high);
  j["interval"] = bounded ? Json({rounded(t.low), rounded(t.high)}) : Json(nullptr);
  j["p_slower"] = rounded(t.p_slower);
  j["p_faster"] = rounded(t.p_faster);
  return j;
}

Json side_json(const Side& side) {
  return {{"label", side_text(side)},
          {"commit", side.commit},
          {"dirty", side.dirty},
          {"files", side.files.size()}};
}

}  // namespace

std::string json_report(const Comparison& c) {
  Json j;
  j["format"] = 1;
  j["headline"] = headline(c);
  j["exit_status"] = c.exit_status();
  j["base"] = side_json(c.sides.base);
  j["new"] = side_json(c.sides.head);
  j["options"] = {{"min_effect", c.options.min_effect},
                  {"alpha", c.options.alpha},
                  {"level", c.options.level},
                  {"looks", c.options.looks},
                  {"clock", c.options.clock == Clock::real ? "real" : "cpu"}};
  j["paired_by"] = c.sides.by_repetition ? "repetition" : "file";
  j["fewest_pairs"] = c.fewest_pairs;
  j["fingerprint_differences"] = Json::array();
  for (const FingerprintDifference& d : c.sides.differences) {
    j["fingerprint_differences"].push_back(
        {{"field", d.field}, {"expected", d.expected}, {"got", d.got}});
  }
  j["notes"] = c.notes;
  j["findings"] = Json::array();
  for (const Finding& f : c.findings) {
    j["findings"].push_back({{"kind", to_string(f.kind)}, {"text", f.text}});
  }
  j["benchmarks"] = Json::array();
  for (const BenchmarkResult& b : c.benchmarks) {
    Json entry;
    entry["name"] = b.name;
    entry["verdict"] = verdict_word(b);
    entry["presence"] = to_string(b.presence);
    if (!b.error.empty()) entry["error"] = b.error;
    entry["time"] = time_json(b.time);
    if (b.time.verdict == TimeVerdict::unsure) entry["unsure_because"] = unsure_reason(b.time, c);
    entry["counters"] = Json::object();
    for (const CounterResult& counter : b.counters) {
      entry["counters"][counter.name] = {{"change", to_string(counter.change)},
                                         {"base", or_null(counter.base)},
                                         {"new", or_null(counter.head)}};
    }
    entry["other"] = Json::object();
    for (const OtherCounter& counter : b.other) {
      entry["other"][counter.name] = {{"base", or_null(counter.base)},
                                      {"new", or_null(counter.head)}};
    }
    j["benchmarks"].push_back(entry);
  }
  return j.dump(2) + "\n";
}

}  // namespace rematch::compare
