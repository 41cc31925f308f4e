#include "engine/cpu/threads.h"

#include <immintrin.h>

#include <atomic>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "engine/cpu/chain.h"

namespace rematch::cpu {
namespace {

/// Workers of one calling thread. A step hands them thousands of small jobs, so they look for the
/// next one for a while before they sleep. Every running thread, including the caller, takes the
/// next share. A job waits only for threads that have begun a share.
class Pool {
 public:
  explicit Pool(int workers) {
    workers_.reserve(static_cast<std::size_t>(workers));
    try {
      for (int i = 0; i < workers; ++i) workers_.emplace_back([this] { serve(); });
    } catch (...) {
      stop();
      throw;
    }
  }
  ~Pool() { stop(); }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  void run(std::int64_t shares, std::int64_t count, std::int64_t multiple, detail::Part part,
           const void* body) {
    job_ = {shares, count, multiple, part, body, vectors()};
    next_.store(0, std::memory_order_relaxed);
    open_.store(true);
    publish();
    work();
    // From here on no thread begins a share; wait for those that have read the job. Sequentially
    // consistent, as is serve(): either it sees that the job is closed, or we see that it is there.
    open_.store(false);
    for (int spins = 0; inside_.load() != 0; ++spins) {
      if (spins < kSpins) {
        _mm_pause();
      } else {
        std::this_thread::yield();
      }
    }
    if (failed_.exchange(false)) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  static constexpr int kSpins = 20000;

  struct Job {
    std::int64_t shares = 0;
    std::int64_t count = 0;
    std::int64_t multiple = 1;
    detail::Part part = nullptr;
    const void* body = nullptr;
    Vectors vectors = Vectors::avx2;
  };

  void stop() {
    stopping_ = true;
    publish();
    for (std::thread& w : workers_) w.join();
  }

  void publish() {
    generation_.fetch_add(1, std::memory_order_release);
    generation_.notify_all();
  }

  /// Takes shares until none is left.
  void work() {
    const std::int64_t units = (job_.count + job_.multiple - 1) / job_.multiple;
    const auto bound = [&](std::int64_t i) {
      return std::min(job_.count, units * i / job_.shares * job_.multiple);
    };
    while (true) {
      const std::int64_t share = next_.fetch_add(1, std::memory_order_relaxed);
      if (share >= job_.shares) return;
      const std::int64_t begin = bound(share);
      const std::int64_t end = bound(share + 1);
      if (begin >= end) continue;
      try {
        job_.part(job_.body, begin, end);
      } catch (...) {
        if (!failed_.exchange(true)) error_ = std::current_exception();
        next_.store(job_.shares, std::memory_order_relaxed);
        return;
      }
    }
  }

  void serve() {
    std::uint32_t seen = 0;
    while (true) {
      std::uint32_t now = generation_.load(std::memory_order_acquire);
      for (int spins = 0; now == seen && spins < kSpins; ++spins) {
        _mm_pause();
        now = generation_.load(std::memory_order_acquire);
      }
      if (now == seen) {
        generation_.wait(seen, std::memory_order_acquire);
        continue;
      }
      seen = now;
      if (stopping_) return;
      inside_.fetch_add(1);
      if (open_.load()) {
        set_vectors(job_.vectors);
        work();
      }
      inside_.fetch_sub(1);
    }
  }

  Job job_;
  std::atomic<std::uint32_t> generation_{0};
  std::atomic<std::int64_t> next_{0};
  std::atomic<bool> open_{false};
  std::atomic<int> inside_{0};
  std::atomic<bool> failed_{false};
  // Written by the thread that set failed_, read when no other thread is inside.
  std::exception_ptr error_;
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> workers_;
};

thread_local int wanted = 1;
thread_local bool sharing = false;
thread_local std::unique_ptr<Pool> pool;

}  // namespace

int threads() { return sharing ? 1 : wanted; }

void set_threads(int count) {
  if (count < 1 || count > kMaxThreads) {
    throw std::invalid_argument("[threads] 1.." + std::to_string(kMaxThreads) + " expected, got " +
                                std::to_string(count));
  }
  if (sharing) throw std::logic_error("[threads] not within work that is shared out");
  if (count == wanted) return;
  // The new ones first: where the system has no more threads, the old ones stay.
  std::unique_ptr<Pool> fresh;
  if (count > 1) {
    try {
      fresh = std::make_unique<Pool>(count - 1);
    } catch (const std::system_error& e) {
      throw std::runtime_error("[threads] the system has no room for " + std::to_string(count) +
                               " threads (" + e.what() + "); ask for fewer");
    }
  }
  pool = std::move(fresh);
  wanted = count;
}

void detail::run_shares(std::int64_t shares, std::int64_t count, std::int64_t multiple, Part part,
                        const void* body) {
  struct Shared {
    Shared() { sharing = true; }
    ~Shared() { sharing = false; }
  } const shared;
  pool->run(shares, count, multiple, part, body);
}

}  // namespace rematch::cpu
