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

#include "properties/hunt/worker_process.h"
#include "properties/record/machine.h"

namespace rematch {
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
  const auto add_error = [&](const std::string& what) {
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
        if (!worker) worker = restart_worker(options);
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
        add_error(fmt::format("case {} was not shrunk: {}", violating[at].index, lost));
      } else if (!shrunk) {
        if (!failed) add_error(thrown);
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
