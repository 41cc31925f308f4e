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

#include "properties/case/geometry.h"

namespace rematch {
namespace {

using Clock = std::chrono::steady_clock;

/// Cases that a worker takes at once: enough to make the shared counter cheap, few enough that
/// stopping is prompt.
constexpr std::uint64_t kChunk = 8;

/// The finaliser of SplitMix64: every input bit reaches every output bit.
constexpr std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

struct Tally {
  std::uint64_t cases = 0;
  std::array<std::uint64_t, kFeatureCount> features{};
  /// How often each law was checked.
  std::vector<std::uint64_t> checks;
  std::uint64_t record_hash = 0;
  /// The chunk ends with this failing case.
  std::optional<HuntFailure> failure;

  explicit Tally(std::size_t laws) : checks(laws) {}

  void add(const Tally& chunk) {
    cases += chunk.cases;
    record_hash += chunk.record_hash;
    for (std::size_t i = 0; i < features.size(); ++i) features[i] += chunk.features[i];
    for (std::size_t i = 0; i < checks.size(); ++i) checks[i] += chunk.checks[i];
    if (chunk.failure) failure = chunk.failure;
  }
};

/// What the workers share. Chunks are handed out in order and every chunk handed out is finished,
/// unless an earlier one failed; tallies are added up in order too, up to the first failure. So
/// the cases that count are always 0 .. n - 1, and which thread ran them is forgotten.
class Campaign {
 public:
  explicit Campaign(const HuntOptions& options) : options_(options), total_(laws().size()) {}

  void work() {
    try {
      const std::unique_ptr<Subject> subject = options_.make_subject();
      Bench bench;
      while (const std::optional<std::uint64_t> chunk = next_chunk()) {
        commit(*chunk, run_chunk(*chunk, *subject, bench));
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
      closed_ = true;
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
      report(false);
      lock.lock();
    }
  }

  void report(bool shrinking) const {
    if (options_.progress) options_.progress({judged_.load(), elapsed(), shrinking});
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

  const Tally& total() const { return total_; }
  bool interrupted() const { return interrupted_; }

 private:
  std::optional<std::uint64_t> next_chunk() {
    const std::lock_guard lock(mutex_);
    if (closed_) return std::nullopt;
    if (options_.stop != nullptr && options_.stop->load()) {
      interrupted_ = true;
      return std::nullopt;
    }
    if (options_.seconds && elapsed() >= *options_.seconds) return std::nullopt;
    if (options_.cases && next_ * kChunk >= *options_.cases) return std::nullopt;
    return next_++;
  }

  Tally run_chunk(std::uint64_t chunk, Subject& subject, Bench& bench) {
    Tally tally(laws().size());
    const std::uint64_t begin = chunk * kChunk;
    std::uint64_t end = begin + kChunk;
    if (options_.cases) end = std::min(end, *options_.cases);
    for (std::uint64_t index = begin; index < end && !tally.failure; ++index) {
      if (first_failed_.load() < chunk) break;
      run_case(index, subject, bench, tally);
      judged_.fetch_add(1, std::memory_order_relaxed);
    }
    return tally;
  }

  void run_case(std::uint64_t index, Subject& subject, Bench& bench, Tally& tally) {
    const Case c = options_.generate ? options_.generate(index)
                                     : generate_case(options_.mix, options_.seed, index);
    Verdict verdict = judge_or_catch(c, subject, bench, options_.only);
    if (options_.only != nullptr && options_.pass_over_failures && verdict.breach &&
        verdict.breach->law != options_.only->name) {
      verdict.breach.reset();
    }
    ++tally.cases;
    for (std::size_t i = 0; i < tally.checks.size(); ++i) {
      tally.checks[i] += verdict.checked[i] ? 1U : 0U;
    }
    tally.record_hash +=
        mixed(mixed(mixed(index) ^ bench.plain.hash()) ^ bench.checkpointed.hash());
    if (!verdict.breach || verdict.breach->law != kNoAnswer) {
      const FeatureSet features = features_of(c, validate(c));
      for (std::size_t i = 0; i < kFeatureCount; ++i) tally.features[i] += features[i] ? 1U : 0U;
    }
    if (verdict.breach) tally.failure = HuntFailure{index, c, c, *std::move(verdict.breach)};
  }

  void commit(std::uint64_t chunk, Tally tally) {
    const std::lock_guard lock(mutex_);
    if (tally.failure) {
      closed_ = true;
      first_failed_.store(std::min(first_failed_.load(), chunk));
    }
    waiting_.emplace(chunk, std::move(tally));
    for (auto first = waiting_.begin(); first != waiting_.end() && first->first == committed_;
         first = waiting_.erase(first), ++committed_) {
      if (!total_.failure) total_.add(first->second);
    }
  }

  const HuntOptions& options_;
  const Clock::time_point started_ = Clock::now();
  std::atomic<std::uint64_t> judged_{0};
  std::atomic<std::uint64_t> first_failed_{UINT64_MAX};
  std::mutex mutex_;
  std::condition_variable done_;
  int finished_ = 0;
  bool closed_ = false;
  bool interrupted_ = false;
  std::exception_ptr error_;
  std::uint64_t next_ = 0;
  /// Chunks that ended before one handed out earlier did.
  std::map<std::uint64_t, Tally> waiting_;
  std::uint64_t committed_ = 0;
  Tally total_;
};

/// Whether law `a` is nearer to the cause than `b`, a law about events: those tell of a fault even
/// where numbers happen to hide it from the laws before them.
bool is_nearer(std::string_view a, std::string_view b) {
  const Law* const first = find_law(a);
  const Law* const second = find_law(b);
  return first != nullptr && second != nullptr && second->needs == Needs::events && first < second;
}

void shrink_failure(const HuntOptions& options, HuntFailure& failure) {
  const std::unique_ptr<Subject> subject = options.make_subject();
  Bench bench;
  const auto breach_of = [&](const Case& c) {
    return judge_or_catch(c, *subject, bench, options.only).breach;
  };
  const std::string_view law = failure.breach.law;
  const auto still_fails = [&](const Case& c) {
    if (options.stop != nullptr && options.stop->load()) return false;
    const std::optional<Breach> breach = breach_of(c);
    return breach && (breach->law == law || is_nearer(breach->law, law));
  };
  failure.smallest = shrink(failure.original, still_fails, options.shrink);
  // A case that fails only in its worker (state shared between threads, say) does not fail here:
  // then the breach that was seen stands, for the case as it was.
  if (std::optional<Breach> breach = breach_of(failure.smallest)) {
    failure.breach = *std::move(breach);
  } else {
    failure.smallest = failure.original;
  }
}

std::vector<std::string> shortfalls_of(const HuntOptions& options, const Tally& tally) {
  std::vector<std::string> shortfalls;
  if (tally.cases == 0) {
    shortfalls.emplace_back("no case was run, so nothing was checked");
    return shortfalls;
  }
  if (tally.cases < options.floors_from || tally.failure) return shortfalls;
  for (std::size_t i = 0; i < kFeatureCount; ++i) {
    const auto feature = static_cast<Feature>(i);
    const double promised = floor(options.mix, feature);
    const double share = static_cast<double>(tally.features[i]) / static_cast<double>(tally.cases);
    if (share < promised) {
      shortfalls.push_back(fmt::format(
          "feature {} was in {:.2f} % of {} cases, but mix {} promises at least {:.2f} %: the hunt "
          "looked less closely than it claims",
          to_string(feature), 100 * share, tally.cases, to_string(options.mix), 100 * promised));
    }
  }
  return shortfalls;
}

}  // namespace

Verdict judge_or_catch(const Case& c, Subject& subject, Bench& bench, const Law* only) {
  bench.plain.clear();
  bench.checkpointed.clear();
  Verdict verdict;
  try {
    verdict = judge(c, subject, bench, only);
  } catch (const CaseTooLarge&) {
    throw;
  } catch (const std::exception& error) {
    verdict.breach = Breach{kNoAnswer, "the whole run", "two records that laws can be checked on",
                            fmt::format("exception: {}", error.what())};
  }
  return verdict;
}

HuntResult hunt(const HuntOptions& options) {
  if (options.jobs < 1) {
    throw std::invalid_argument(
        fmt::format("[hunt] jobs must be at least 1, got {}", options.jobs));
  }
  if (!options.make_subject) throw std::invalid_argument("[hunt] make_subject is empty");

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
  campaign.rethrow();

  HuntResult result;
  const Tally& total = campaign.total();
  result.cases = total.cases;
  result.features = total.features;
  result.checks = total.checks;
  result.record_hash = total.record_hash;
  result.interrupted = campaign.interrupted();
  result.seconds = campaign.elapsed();
  result.shortfalls = shortfalls_of(options, total);
  if (total.failure) {
    campaign.report(true);
    result.failure = total.failure;
    shrink_failure(options, *result.failure);
  }
  return result;
}

}  // namespace rematch
