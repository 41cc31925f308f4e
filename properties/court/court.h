#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "properties/plans/planner.h"

namespace rematch {

/// A planner as a thread uses it, and how a thread gets one.
using PlannerFunction = std::function<PlannerAnswer(const PlannerTask&)>;
struct CourtPlanner {
  std::string name;
  std::function<PlannerFunction()> start;
};
CourtPlanner court_planner(const Planner& planner);

/// One plan in the engine, beside its promise and the best plans.
struct Trial {
  std::uint64_t chain = 0;
  std::int64_t budget = 0;
  PromiseSpec promised;
  PromiseSpec measured;
  /// Recomputations beyond the fewest within as many bytes.
  std::int64_t extra_recomputations = 0;
  /// Bytes beyond the fewest with as many recomputations.
  std::int64_t extra_bytes = 0;
  /// The laws plan-promise and plan-recomputations were judged: kept, or one violated.
  bool promise_broken = false;
  /// Another law was.
  std::string law;

  std::int64_t bytes_broken() const;
  std::int64_t recomputations_broken() const;
  std::int64_t over_budget() const;
};

/// The worst of one kind, with the case that shows it.
struct Worst {
  std::int64_t amount = 0;
  std::uint64_t chain = 0;
  std::optional<Case> shown;
};

struct PlannerResult {
  std::string name;
  /// In the order of chains.
  std::vector<Trial> trials;
  std::uint64_t refused = 0;
  /// By the reason, of the first chain that had it.
  std::string refusal;
  std::uint64_t refused_first = 0;
  Worst bytes;
  Worst recomputations;
  Worst regret;
  /// A law other than these two is violated, or a plan is better than the optimum.
  Worst defect;
  /// Failure that ended the planner before its time; empty if none did.
  std::string failure;
};

struct CourtOptions {
  std::uint64_t chains = 1000;
  std::uint64_t seed = 0;
  /// If not empty: these models instead of random chains.
  std::vector<Case> models;
  int fewest_layers = 1;
  int most_layers = 12;
  int jobs = 1;
  std::vector<CourtPlanner> planners;
  const std::atomic<bool>* stop = nullptr;
  std::function<void(std::uint64_t done)> progress;
};

struct CourtResult {
  std::uint64_t chains = 0;
  /// Chains in which the bytes that the search for the optimum counted were corrected.
  std::uint64_t inexact = 0;
  std::vector<PlannerResult> planners;
};

/// Has each chain planned by each planner for the same budget, runs the plans in the engine, and
/// judges them by all laws. The budget of a chain is drawn between the fewest bytes that any plan
/// needs and the bytes of the plain run. Equal options give equal results, whatever `jobs` is.
CourtResult hold_court(const CourtOptions& options);

}  // namespace rematch
