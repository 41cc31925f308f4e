#include "properties/court/court.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "properties/court/random_chain.h"
#include "properties/hunt/gather.h"
#include "properties/layers/draw_source.h"
#include "properties/subjects/engine_subject.h"

namespace rematch {
namespace {

constexpr std::string_view kPlanPromises[] = {"plan-promise", "plan-recomputations"};
/// Streams of the budgets, so that they do not change the chains.
constexpr std::uint64_t kBudgets = std::uint64_t{1} << 63;

PromiseSpec measured_of(const Record& record, const ProtocolSpec& protocol) {
  PromiseSpec m{0, 0};
  for (const LiveReading& r : record.live) m.peak_bytes = std::max(m.peak_bytes, r.peak);
  std::vector<std::int64_t> runs(static_cast<std::size_t>(protocol.steps * protocol.microbatches));
  for (const ExecutionCount& x : record.executions) {
    std::int64_t& sum =
        runs[static_cast<std::size_t>(x.step * protocol.microbatches + x.microbatch)];
    sum += x.count - 1;
    m.recomputations = std::max(m.recomputations, sum);
  }
  return m;
}

/// Distances to the best plans. Without a plan in the frontier that is as good, the measured one is
/// better, and the distance negative.
void compare(Trial& trial, const Frontier& frontier) {
  const auto within = std::find_if(
      frontier.plans.begin(), frontier.plans.end(),
      [&](const BestPlan& p) { return p.promise.peak_bytes <= trial.measured.peak_bytes; });
  trial.extra_recomputations = within == frontier.plans.end()
                                   ? -1
                                   : trial.measured.recomputations - within->promise.recomputations;
  const BestPlan* least = &frontier.plans.front();
  for (const BestPlan& p : frontier.plans) {
    if (p.promise.recomputations <= trial.measured.recomputations) least = &p;
  }
  trial.extra_bytes = trial.measured.peak_bytes - least->promise.peak_bytes;
}

/// Parts that one thread needs again and again.
class Bench {
 public:
  explicit Bench(const CourtOptions& options) : options_(options) {}

  struct Outcome {
    std::optional<Trial> trial;
    std::optional<Case> planned;
    std::string refusal;
    std::string failure;
  };

  /// An outcome for each planner. Returns whether the frontier is exact.
  bool judge(std::uint64_t index, std::vector<Outcome>& outcomes) {
    const Case model = model_of(index);
    const Frontier frontier = frontier_of(model);
    const Chain chain = chain_of(model, validate(model));
    const std::int64_t most = frontier.plans.front().promise.peak_bytes;
    const std::int64_t least = frontier.plans.back().promise.peak_bytes;
    DrawSource draw(options_.seed, kBudgets + index);
    const std::int64_t budget =
        least + static_cast<std::int64_t>(draw.below(static_cast<std::uint32_t>(most - least) + 1));
    const PlannerTask task = task_of(model, chain, frontier, budget);
    outcomes.assign(options_.planners.size(), {});
    functions_.resize(outcomes.size());
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
      Outcome& outcome = outcomes[i];
      try {
        if (!functions_[i]) functions_[i] = options_.planners[i].start();
        PlannerAnswer answer = functions_[i](task);
        outcome.refusal = answer.refusal;
        if (!outcome.refusal.empty()) continue;
        outcome.planned = model;
        outcome.planned->plan = std::move(answer.plan);
      } catch (const std::exception& error) {
        outcome.failure = error.what();
        continue;
      }
      try {
        validate(*outcome.planned);
      } catch (const std::invalid_argument& invalid) {
        outcome.refusal = std::string("the plan is not valid: ") + invalid.what();
        outcome.planned.reset();
        continue;
      }
      outcome.trial = run(*outcome.planned, index, budget, frontier);
    }
    return frontier.exact;
  }

 private:
  Case model_of(std::uint64_t index) const {
    if (options_.models.empty()) {
      DrawSource draw(options_.seed, index);
      return random_chain(draw, options_.fewest_layers, options_.most_layers);
    }
    Case model = options_.models[index];
    model.plan = {};
    return model;
  }

  Trial run(const Case& planned, std::uint64_t index, std::int64_t budget,
            const Frontier& frontier) {
    const Verdicts verdicts = judge_case(planned, engine_, workspace_);
    Trial trial{index, budget, planned.plan.promise, {}, 0, 0, false, {}};
    trial.measured = measured_of(workspace_.checkpointed, planned.protocol);
    for (const Violation& v : verdicts.violations) {
      if (std::ranges::find(kPlanPromises, v.law) != std::end(kPlanPromises)) {
        trial.promise_broken = true;
      } else if (trial.law.empty()) {
        trial.law = v.law;
      }
    }
    compare(trial, frontier);
    return trial;
  }

  const CourtOptions& options_;
  std::vector<PlannerFunction> functions_;
  EngineSubject engine_;
  Workspace workspace_;
};

void note(Worst& worst, std::int64_t amount, const Trial& trial, const Case& planned) {
  if (amount <= 0) return;
  const bool earlier = amount == worst.amount && trial.chain < worst.chain;
  if (amount > worst.amount || earlier) worst = {amount, trial.chain, planned};
}

void add(PlannerResult& result, std::uint64_t index, Bench::Outcome& outcome) {
  if (!outcome.failure.empty()) {
    if (result.failure.empty()) result.failure = outcome.failure;
    return;
  }
  if (!outcome.trial) {
    if (result.refused++ == 0 || index < result.refused_first) {
      result.refusal = outcome.refusal;
      result.refused_first = index;
    }
    return;
  }
  const Trial& t = *outcome.trial;
  const Case& planned = *outcome.planned;
  note(result.bytes, t.bytes_broken(), t, planned);
  note(result.recomputations, t.recomputations_broken(), t, planned);
  note(result.regret, t.extra_recomputations, t, planned);
  const bool better = t.extra_recomputations < 0 || t.extra_bytes < 0;
  note(result.defect, !t.law.empty() || better ? 1 : 0, t, planned);
  result.trials.push_back(t);
}

std::int64_t beyond(std::int64_t measured, std::int64_t promised) {
  return promised == PromiseSpec::kNone ? 0 : std::max<std::int64_t>(0, measured - promised);
}

}  // namespace

std::int64_t Trial::bytes_broken() const {
  return beyond(measured.peak_bytes, promised.peak_bytes);
}

std::int64_t Trial::recomputations_broken() const {
  return beyond(measured.recomputations, promised.recomputations);
}

std::int64_t Trial::over_budget() const { return beyond(measured.peak_bytes, budget); }

CourtPlanner court_planner(const Planner& planner) {
  return {std::string(planner.name), [&planner] { return PlannerFunction(planner.plan); }};
}

CourtResult hold_court(const CourtOptions& options) {
  CourtResult result;
  for (const CourtPlanner& p : options.planners) result.planners.emplace_back().name = p.name;
  const std::uint64_t chains = options.models.empty() ? options.chains : options.models.size();
  std::atomic<std::uint64_t> next{0};
  std::mutex mutex;
  std::exception_ptr thrown;
  const auto work = [&] {
    try {
      Bench bench(options);
      std::vector<Bench::Outcome> outcomes;
      for (;;) {
        if (options.stop != nullptr && options.stop->load()) return;
        const std::uint64_t index = next++;
        if (index >= chains) return;
        const bool exact = bench.judge(index, outcomes);
        const std::lock_guard lock(mutex);
        if (thrown) return;
        ++result.chains;
        if (!exact) ++result.inexact;
        for (std::size_t i = 0; i < outcomes.size(); ++i) {
          add(result.planners[i], index, outcomes[i]);
        }
        if (options.progress) options.progress(result.chains);
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!thrown) thrown = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int i = 1; i < options.jobs; ++i) threads.emplace_back(work);
    work();
  }
  if (thrown) std::rethrow_exception(thrown);
  for (PlannerResult& p : result.planners) {
    std::sort(p.trials.begin(), p.trials.end(),
              [](const Trial& a, const Trial& b) { return a.chain < b.chain; });
  }
  return result;
}

}  // namespace rematch
