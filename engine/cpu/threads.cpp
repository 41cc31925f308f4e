#include "engine/cpu/threads.h"

#include <immintrin.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace rematch::cpu {
namespace {

/// Workers of one calling thread. A step hands them thousands of small jobs, so they look for the
/// next one for a while before they sleep.
class Pool {
 public:
  explicit Pool(int workers) {
    workers_.reserve(static_cast<std::size_t>(workers));
    try {
      for (int i = 0; i < workers; ++i) workers_.emplace_back([this, i] { serve(i + 1); });
    } catch (...) {
      stop();
      throw;
    }
  }
  ~Pool() { stop(); }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  void run(int parts, std::int64_t count, std::int64_t multiple, detail::Part part,
           const void* body) {
    job_ = {parts, count, multiple, part, body};
    left_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
    publish();
    share(0);
    for (int spins = 0; left_.load(std::memory_order_acquire) != 0; ++spins) {
      if (spins < kSpins) {
        _mm_pause();
      } else {
        std::this_thread::yield();
      }
    }
  }

 private:
  static constexpr int kSpins = 20000;

  struct Job {
    int parts = 0;
    std::int64_t count = 0;
    std::int64_t multiple = 1;
    detail::Part part = nullptr;
    const void* body = nullptr;
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

  void share(int index) const {
    if (index >= job_.parts) return;
    const std::int64_t units = (job_.count + job_.multiple - 1) / job_.multiple;
    const auto bound = [&](std::int64_t i) {
      return std::min(job_.count, units * i / job_.parts * job_.multiple);
    };
    const std::int64_t begin = bound(index);
    const std::int64_t end = bound(index + 1);
    if (begin < end) job_.part(job_.body, begin, end);
  }

  void serve(int index) {
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
      share(index);
      left_.fetch_sub(1, std::memory_order_acq_rel);
    }
  }

  Job job_;
  std::atomic<std::uint32_t> generation_{0};
  std::atomic<int> left_{0};
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> workers_;
};

thread_local int wanted = 1;
thread_local std::unique_ptr<Pool> pool;

}  // namespace

int threads() { return wanted; }

void set_threads(int count) {
  if (count < 1 || count > kMaxThreads) {
    throw std::invalid_argument("[threads] 1.." + std::to_string(kMaxThreads) + " expected, got " +
                                std::to_string(count));
  }
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

void detail::run_parts(int parts, std::int64_t count, std::int64_t multiple, Part part,
                       const void* body) {
  pool->run(parts, count, multiple, part, body);
}

}  // namespace rematch::cpu
