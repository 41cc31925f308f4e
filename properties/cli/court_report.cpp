#include "properties/cli/court_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "properties/output/terminal.h"

namespace rematch::cli {
namespace {

using Json = nlohmann::ordered_json;
using Amount = std::function<std::int64_t(const Trial&)>;

/// The positive amounts of a planner's trials.
struct Spread {
  std::uint64_t asked = 0;
  std::vector<std::int64_t> some;

  Spread(
      const PlannerResult& p, const Amount& amount,
      const std::function<bool(const Trial&)>& counts = [](const Trial&) { return true; }) {
    for (const Trial& t : p.trials) {
      if (!counts(t)) continue;
      ++asked;
      if (const std::int64_t n = amount(t); n > 0) some.push_back(n);
    }
    std::sort(some.begin(), some.end());
  }
  std::int64_t median() const { return some[(some.size() - 1) / 2]; }
  std::int64_t worst() const { return some.back(); }
  /// "12 (3, 40)": how many, the median of these, and the worst.
  std::string text() const {
    if (asked == 0) return "none asked";
    if (some.empty()) return "0";
    return fmt::format("{} ({}, {})", grouped(std::ssize(some)), grouped(median()),
                       grouped(worst()));
  }
  Json json() const {
    Json j{{"plans", asked}, {"some", some.size()}};
    if (!some.empty()) {
      j["median"] = median();
      j["worst"] = worst();
    }
    return j;
  }
};

bool promises_bytes(const Trial& t) { return t.promised.peak_bytes != PromiseSpec::kNone; }
bool promises_recomputations(const Trial& t) {
  return t.promised.recomputations != PromiseSpec::kNone;
}

struct Sums {
  Spread bytes, recomputations, over, extra_recomputations, extra_bytes;
  explicit Sums(const PlannerResult& p)
      : bytes(p, &Trial::bytes_broken, promises_bytes),
        recomputations(p, &Trial::recomputations_broken, promises_recomputations),
        over(p, &Trial::over_budget),
        extra_recomputations(p, [](const Trial& t) { return t.extra_recomputations; }),
        extra_bytes(p, [](const Trial& t) { return t.extra_bytes; }) {}
};

std::string promise_text(const Spread& s) {
  if (s.asked == 0) return "none made";
  const auto broken = s.some.size();
  return fmt::format(
      "{} kept, {} broken{}", grouped(static_cast<std::int64_t>(s.asked - broken)),
      grouped(static_cast<std::int64_t>(broken)),
      broken == 0 ? "" : fmt::format(" ({}, {})", grouped(s.median()), grouped(s.worst())));
}

/// The end of a command says which it is.
std::string label_of(const PlannerResult& p) {
  constexpr std::size_t kWidth = 36;
  return p.name.size() <= kWidth ? p.name : "..." + p.name.substr(p.name.size() - kWidth + 3);
}

std::map<std::string, std::uint64_t> defects(const PlannerResult& p) {
  std::map<std::string, std::uint64_t> by_law;
  for (const Trial& t : p.trials) {
    if (!t.law.empty()) ++by_law[t.law];
    if (t.extra_recomputations < 0 || t.extra_bytes < 0) ++by_law["better than the optimum"];
  }
  return by_law;
}

}  // namespace

std::map<std::string, Case> worst_cases(const CourtResult& result) {
  std::map<std::string, Case> cases;
  for (std::size_t i = 0; i < result.planners.size(); ++i) {
    const PlannerResult& p = result.planners[i];
    std::string name;
    for (const char c : p.name) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
    if (name.size() > 40) name = fmt::format("{}_{}", i + 1, name.substr(name.size() - 40));
    for (const auto& [what, worst] : {std::pair("bytes", &p.bytes),
                                      {"recomputations", &p.recomputations},
                                      {"regret", &p.regret},
                                      {"defect", &p.defect}}) {
      if (worst->shown) cases.emplace(fmt::format("{}-{}.json", name, what), *worst->shown);
    }
  }
  return cases;
}

bool is_kept(const CourtResult& result) {
  return std::all_of(result.planners.begin(), result.planners.end(), [](const PlannerResult& p) {
    return defects(p).empty() && std::none_of(p.trials.begin(), p.trials.end(), [](const Trial& t) {
             return t.promise_broken || t.bytes_broken() > 0 || t.recomputations_broken() > 0;
           });
  });
}

std::string court_text(const CourtResult& result) {
  Table promises({false, true, true, false, false, false}, {0});
  promises.add({"planner", "planned", "refused", "bytes promised", "recomputations promised",
                "over its budget, B"});
  Table regret({false, false, false}, {0});
  regret.add({"planner", "recomputations beyond the fewest in its bytes",
              "bytes beyond the fewest for its recomputations"});
  std::string notes;
  for (const PlannerResult& p : result.planners) {
    const Sums s(p);
    const std::string label = label_of(p);
    promises.add({label, grouped(std::ssize(p.trials)),
                  grouped(static_cast<std::int64_t>(p.refused)), promise_text(s.bytes),
                  promise_text(s.recomputations), s.over.text()});
    regret.add({label, s.extra_recomputations.text(), s.extra_bytes.text()});
    if (p.refused > 0) {
      notes += fmt::format("{} refuses chain {}: {}\n", label, p.refused_first, p.refusal);
    }
    for (const auto& [what, count] : defects(p)) {
      notes += fmt::format("{}, {} of its plans: {}\n", label, count, what);
    }
    if (!p.failure.empty()) notes += fmt::format("{} failed: {}\n", label, p.failure);
  }
  if (result.inexact > 0) {
    notes +=
        fmt::format("{} where the optimum may not be the best\n", counted(result.inexact, "chain"));
  }
  return promises.text() + "\n" + regret.text() + "\n" +
         "  N (M, W): N plans, by a median of M and W at worst\n" + (notes.empty() ? "" : "\n") +
         notes;
}

Json court_json(const CourtResult& result) {
  Json planners = Json::array();
  for (const PlannerResult& p : result.planners) {
    const Sums s(p);
    Json j{{"planner", p.name},
           {"planned", p.trials.size()},
           {"refused", p.refused},
           {"bytes_broken", s.bytes.json()},
           {"recomputations_broken", s.recomputations.json()},
           {"over_budget_bytes", s.over.json()},
           {"extra_recomputations", s.extra_recomputations.json()},
           {"extra_bytes", s.extra_bytes.json()},
           {"defects", defects(p)}};
    if (p.refused > 0) j["refusal"] = {{"chain", p.refused_first}, {"why", p.refusal}};
    if (!p.failure.empty()) j["failure"] = p.failure;
    planners.push_back(j);
  }
  return {{"chains", result.chains}, {"inexact", result.inexact}, {"planners", planners}};
}

}  // namespace rematch::cli
