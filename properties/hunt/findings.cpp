#include "properties/hunt/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <tuple>

#include "properties/hunt/worker.h"
#include "properties/record/machine.h"

namespace rematch {
namespace {

/// Whether law `a` is nearer to the cause than `b`, a law about bytes and events: those tell of a
/// fault even where numbers happen to hide it from the laws before them.
bool is_nearer(std::string_view a, std::string_view b) {
  const Law* const first = find_law(a);
  const Law* const second = find_law(b);
  if (first == nullptr || second == nullptr) return false;
  const bool about_events = second->reads.contains(Observable::live_bytes) ||
                            second->reads.contains(Observable::execution_order);
  return about_events && index_of(*first) < index_of(*second);
}

}  // namespace

Finding shrink_one(const HuntOptions& options, const ViolatingCase& violating, Subject& subject,
                   Workspace& workspace) {
  const std::string_view law = violating.violation.law;
  GatherOptions gathering;
  gathering.laws = options.judged();
  gathering.poison_at_once = true;
  // The hunt has told noise from faults already.
  gathering.doubt = [law](const Verdicts&) { return law == "repeatable"; };
  const auto violation_of = [&](const Case& c) -> std::optional<Violation> {
    const Verdicts verdicts = judge(c, subject, workspace, gathering);
    if (verdicts.kept()) return std::nullopt;
    const FeatureSet features = features_of(c, workspace.geometry);
    if (const Violation* fresh = options.profile.first_new(verdicts, c, features)) {
      return violating.known ? std::nullopt : std::optional(*fresh);
    }
    for (const Violation& v : verdicts.violations) {
      if (violating.known && v.law == law &&
          options.profile.explains(v, c, features) == violating.known) {
        return v;
      }
    }
    return std::nullopt;
  };
  const auto still_fails = [&](const Case& c) {
    if (options.stopped()) return false;
    try {
      const std::optional<Violation> violation = violation_of(c);
      return violation && (violation->law == law || is_nearer(violation->law, law));
    } catch (const NotJudged&) {
      return false;
    }
  };
  Finding finding{violating.violation, violating.index, violating.c,
                  violating.c,         violating.count, violating.known};
  ShrinkBudget budget = options.shrink;
  // Most steps compile another model.
  if (subject.cases_per_shape() > 1) budget.seconds *= 4;
  finding.smallest = shrink(violating.c, still_fails, budget, scope_of(subject));
  // A case that violates only in its worker (state shared between threads, say) does not do so
  // here: then the violation that was seen stands, for the case as it was.
  if (std::optional<Violation> violation = violation_of(finding.smallest)) {
    finding.violation = *std::move(violation);
  } else {
    finding.smallest = violating.c;
  }
  return finding;
}

namespace {

/// By law, then by how often they were found, then by the first case.
bool comes_before(const Finding& a, const Finding& b) {
  const auto place = [](const Finding& f) {
    return std::tuple(index_of(*find_law(f.violation.law)), ~f.count, f.index);
  };
  return place(a) < place(b);
}

}  // namespace

std::vector<Finding> group(std::vector<Finding> all) {
  std::vector<Finding> groups;
  for (Finding& f : all) {
    const auto same = [&](const Finding& g) {
      Case smallest = g.smallest;
      smallest.seed = f.smallest.seed;
      return g.violation.law == f.violation.law && g.known == f.known && smallest == f.smallest;
    };
    const auto known = std::find_if(groups.begin(), groups.end(), same);
    if (known == groups.end()) {
      groups.push_back(std::move(f));
    } else {
      known->count += f.count;
    }
  }
  std::sort(groups.begin(), groups.end(), comes_before);
  return groups;
}

std::vector<Finding> shrink_all(const HuntOptions& options,
                                const std::vector<ViolatingCase>& violating,
                                const std::function<void(std::size_t done)>& progress,
                                std::string& error) {
  std::vector<Finding> findings;
  findings.reserve(violating.size());
  for (const ViolatingCase& v : violating) {
    findings.push_back({v.violation, v.index, v.c, v.c, v.count, v.known});
  }
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t next = 0;
  std::size_t done = 0;
  int running = static_cast<int>(
      std::min(violating.size(), static_cast<std::size_t>(std::max(options.jobs, 1))));
  bool failed = false;
  const auto say = [&](const std::string& what) {
    if (!options.stopped()) error += (error.empty() ? "" : "\n") + what;
  };
  const auto work = [&] {
    std::unique_ptr<Worker> worker;
    std::unique_lock lock(mutex);
    while (next < violating.size() && !failed && !options.stopped()) {
      const std::size_t at = next++;
      lock.unlock();
      std::optional<Finding> finding;
      std::string lost;
      std::string thrown;
      try {
        if (!worker) worker = worker_again(options);
        finding = worker->shrink(violating[at]);
      } catch (const WorkerLost& loss) {
        worker.reset();
        lost = loss.what();
      } catch (const std::exception& other) {
        thrown = describe(other);
      }
      lock.lock();
      const bool shrunk = finding.has_value();
      if (shrunk) findings[at] = *std::move(finding);
      if (!lost.empty()) {
        say(fmt::format("case {} was not shrunk: {}", violating[at].index, lost));
      } else if (!shrunk) {
        if (!failed) say(thrown);
        failed = true;
      }
      ++done;
    }
    --running;
    changed.notify_all();
  };
  {
    std::vector<std::jthread> workers;
    workers.reserve(static_cast<std::size_t>(running));
    for (int i = running; i > 0; --i) workers.emplace_back(work);
    std::unique_lock lock(mutex);
    while (!changed.wait_for(lock, std::chrono::milliseconds(100), [&] { return running == 0; })) {
      const std::size_t now = done;
      lock.unlock();
      progress(now);
      lock.lock();
    }
  }
  return group(std::move(findings));
}

}  // namespace rematch
