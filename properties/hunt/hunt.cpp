#include "properties/hunt/hunt.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "properties/hunt/lost_worker.h"
#include "properties/hunt/tally.h"
#include "properties/hunt/worker_process.h"
#include "properties/record/machine.h"

namespace rematch {
namespace {

using Clock = std::chrono::steady_clock;

/// Cases that a worker takes at once: enough to make the shared counter cheap, few enough that
/// stopping is prompt. Cases of one shape stay together, so that no two workers compile it.
std::uint64_t chunk_of(const Scope& scope) {
  constexpr std::uint64_t kChunk = 8;
  return scope.cases_per_shape > 1 ? scope.cases_per_shape : kChunk;
}

/// State that the workers share. Chunks are handed out in order and every one of them is finished,
/// unless an earlier one ended the hunt; tallies are added up in order too, up to that one. So the
/// cases that count are always 0 .. n - 1, and which thread ran them is forgotten.
class Campaign {
 public:
  explicit Campaign(const HuntOptions& options) : options_(options) {}

  void work() {
    try {
      if (!is_over()) work_through();
    } catch (const WorkerLost& lost) {
      const std::lock_guard lock(mutex_);
      closed_ = true;
      // Whoever stops a hunt may end its processes as well.
      interrupted_ = options_.stopped();
      if (!interrupted_) lost_.push_back(lost);
    } catch (...) {
      // A subject whose process is ended because the hunt is stopped has made no error.
      fail(!options_.stopped());
    }
    const std::lock_guard lock(mutex_);
    ++finished_;
    done_.notify_all();
  }

  /// Waits for `jobs` workers, reporting progress meanwhile.
  void wait(int jobs) {
    std::unique_lock lock(mutex_);
    while (
        !done_.wait_for(lock, std::chrono::milliseconds(100), [&] { return finished_ == jobs; })) {
      if (!options_.progress) continue;
      lock.unlock();
      report({});
      lock.lock();
    }
  }

  void report(HuntProgress progress) const {
    if (!options_.progress) return;
    progress.cases = judged_.load();
    progress.seconds = elapsed();
    progress.violations = violations_.load();
    options_.progress(progress);
  }

  double elapsed() const { return std::chrono::duration<double>(Clock::now() - started_).count(); }

  /// No worker starts another chunk.
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }

  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }
  std::string error() const {
    try {
      rethrow();
    } catch (const std::exception& error) {
      return describe(error);
    }
    return {};
  }

  const Tally& total() const { return total_; }
  /// Violating cases that the total lacks, because something failed in cases before them.
  std::vector<ViolatingCase> uncommitted_violations() const {
    if (options_.is_over(total_)) return {};
    Tally behind;
    std::map<std::uint64_t, Tally> chunks = waiting_;
    chunks.insert(cut_short_.begin(), cut_short_.end());
    for (const auto& [chunk, tally] : chunks) {
      if (!options_.is_over(behind)) behind.add(tally, options_.shrunk_per_law);
    }
    return behind.violating;
  }
  const Scope& scope() const { return scope_; }
  const Versions& versions() const { return versions_; }
  double start_seconds() const { return start_seconds_; }
  bool interrupted() const { return interrupted_; }
  const std::vector<WorkerLost>& lost() const { return lost_; }

 private:
  void work_through() {
    const std::unique_ptr<Worker> worker = make_worker(options_);
    set_subject(worker->scope(), worker->versions());
    while (const std::optional<std::uint64_t> chunk = next_chunk()) run_chunk(*chunk, *worker);
  }

  /// In a handler.
  void fail(bool is_error) {
    const std::lock_guard lock(mutex_);
    if (is_error && !error_) error_ = std::current_exception();
    if (!is_error) interrupted_ = true;
    closed_ = true;
  }

  bool is_over() {
    const std::lock_guard lock(mutex_);
    if (!closed_ && options_.stopped()) closed_ = interrupted_ = true;
    return closed_;
  }

  std::optional<std::uint64_t> next_chunk() {
    if (is_over()) return std::nullopt;
    const std::lock_guard lock(mutex_);
    if (options_.seconds) {
      const bool has_enough = total_.structures.count() >= options_.structures_at_least;
      const double most = *options_.seconds * (has_enough ? 1 : Schedule::kPatience);
      if (elapsed() >= most) return std::nullopt;
    }
    if (next_ >= end_) return std::nullopt;
    return next_++;
  }

  void set_subject(const Scope& scope, Versions versions) {
    const std::lock_guard lock(mutex_);
    if (start_seconds_ != 0) return;
    start_seconds_ = elapsed();
    scope_ = scope;
    versions_ = std::move(versions);
    if (!options_.cases) return;
    const std::uint64_t size = chunk_of(scope_);
    const std::uint64_t chunks = *options_.cases / size + (*options_.cases % size == 0 ? 0 : 1);
    end_ = chunks;
  }

  void run_chunk(std::uint64_t chunk, Worker& worker) {
    const std::uint64_t size = chunk_of(worker.scope());
    CaseRange cases{chunk * size, (chunk + 1) * size};
    if (options_.cases) cases.end = std::min(cases.end, *options_.cases);
    // A chunk behind the one that ended the hunt does not count.
    Tally tally;
    std::exception_ptr failure;
    try {
      worker.judge(
          cases, [&] { return last_chunk_.load() >= chunk; }, tally);
    } catch (...) {
      failure = std::current_exception();
    }
    judged_.fetch_add(tally.cases, std::memory_order_relaxed);
    violations_.fetch_add(tally.violations(), std::memory_order_relaxed);
    for (const ViolatingCase& violating : tally.violating) report_first(violating);
    if (!failure) return commit(chunk, std::move(tally));
    {
      const std::lock_guard lock(mutex_);
      cut_short_.emplace(chunk, std::move(tally));
    }
    std::rethrow_exception(failure);
  }

  void report_first(const ViolatingCase& violating) {
    if (!options_.found) return;
    const std::lock_guard lock(mutex_);
    const std::size_t law = index_of(*find_law(violating.violation.law));
    if (reported_[law]) return;
    reported_.set(law);
    options_.found(violating);
  }

  void commit(std::uint64_t chunk, Tally tally) {
    const std::lock_guard lock(mutex_);
    if (options_.is_over(tally)) end_with(chunk);
    waiting_.emplace(chunk, std::move(tally));
    for (auto first = waiting_.begin(); first != waiting_.end() && first->first == committed_;
         first = waiting_.erase(first), ++committed_) {
      if (options_.is_over(total_)) continue;
      total_.add(std::move(first->second), options_.shrunk_per_law);
      if (options_.is_over(total_)) end_with(first->first);
    }
  }

  /// With mutex_: chunks behind this one do not count.
  void end_with(std::uint64_t chunk) {
    closed_ = true;
    last_chunk_.store(std::min(last_chunk_.load(), chunk));
  }

  const HuntOptions& options_;
  const Clock::time_point started_ = Clock::now();
  std::atomic<std::uint64_t> judged_{0};
  std::atomic<std::uint64_t> violations_{0};
  /// The first chunk that ended the hunt.
  std::atomic<std::uint64_t> last_chunk_{UINT64_MAX};
  std::mutex mutex_;
  std::condition_variable done_;
  int finished_ = 0;
  bool closed_ = false;
  bool interrupted_ = false;
  /// Laws whose first violation was reported.
  LawSet reported_;
  std::exception_ptr error_;
  std::vector<WorkerLost> lost_;
  std::uint64_t next_ = 0;
  /// One behind the last chunk.
  std::uint64_t end_ = UINT64_MAX;
  /// Chunks that ended before one handed out earlier did.
  std::map<std::uint64_t, Tally> waiting_;
  /// Cases of chunks in which something failed.
  std::map<std::uint64_t, Tally> cut_short_;
  std::uint64_t committed_ = 0;
  Tally total_;
  /// Scope and versions, which are the same for all subjects.
  Scope scope_;
  Versions versions_;
  double start_seconds_ = 0;
};

}  // namespace

HuntResult hunt(const HuntOptions& options) {
  if (options.jobs < 1) {
    throw std::invalid_argument(
        fmt::format("[hunt] jobs must be at least 1, got {}", options.jobs));
  }
  if (options.worker.empty() && !options.make_subject) {
    throw std::invalid_argument("[hunt] make_subject is empty");
  }
  if (!options.worker.empty() && options.generate) {
    throw std::invalid_argument("[hunt] worker processes cannot call generate");
  }
  Campaign campaign(options);
  {
    std::vector<std::jthread> workers;
    workers.reserve(static_cast<std::size_t>(options.jobs));
    try {
      for (int i = 0; i < options.jobs; ++i) workers.emplace_back([&] { campaign.work(); });
      campaign.wait(options.jobs);
    } catch (...) {
      campaign.close();
      throw;
    }
  }

  HuntResult result = result_of(options, campaign.total(), campaign.scope(), campaign.versions());
  std::vector<ViolatingCase> to_shrink = result.violating;
  // Findings from before a failure are not lost with it.
  for (ViolatingCase& found : campaign.uncommitted_violations())
    to_shrink.push_back(std::move(found));
  if (to_shrink.empty() && campaign.lost().empty()) campaign.rethrow();
  result.error = campaign.error();
  if (!campaign.lost().empty()) {
    LostWorkers lost = try_in_flight(options, campaign.scope(), campaign.lost());
    result.error = lost.report;
    result.findings = std::move(lost.findings);
  }
  result.interrupted = campaign.interrupted();
  result.seconds = campaign.elapsed();
  result.start_seconds = campaign.start_seconds();
  // Where a worker was lost, that is why little was judged.
  if (!campaign.lost().empty()) result.shortfalls.clear();
  shrink_into(result, options, std::move(to_shrink), [&](std::size_t done, std::size_t count) {
    HuntProgress progress;
    progress.shrunk = done;
    progress.to_shrink = count;
    campaign.report(progress);
  });
  return result;
}

}  // namespace rematch
