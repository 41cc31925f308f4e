#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>

namespace rematch::cpu {

/// Threads that kernels called from this thread may use, itself included; 1 in a new thread, and in
/// work that is shared out already. The bits of every result are the same for any number: threads
/// share out the elements of a result, never the terms of a sum.
int threads();
/// Throws std::invalid_argument unless `count` is in 1..kMaxThreads, std::runtime_error when the
/// system has no more threads; then nothing has changed. std::logic_error within shared work.
void set_threads(int count);
inline constexpr int kMaxThreads = 256;

/// set_threads() for a scope.
class ThreadsScope {
 public:
  explicit ThreadsScope(int count) : before_(threads()) { set_threads(count); }
  ~ThreadsScope() {
    try {
      set_threads(before_);
    } catch (const std::runtime_error&) {
      set_threads(1);
    }
  }
  ThreadsScope(const ThreadsScope&) = delete;
  ThreadsScope& operator=(const ThreadsScope&) = delete;

 private:
  int before_;
};

namespace detail {
using Part = void (*)(const void* body, std::int64_t begin, std::int64_t end);
/// part(body, ...) for each of `shares` equal shares of [0, count), some of them here.
void run_shares(std::int64_t shares, std::int64_t count, std::int64_t multiple, Part part,
                const void* body);

/// A thread that comes late, because something else has its core, leaves the rest to the others.
inline constexpr std::int64_t kSharesPerThread = 4;
}  // namespace detail

/// Calls body(begin, end) for shares of [0, count) that cover it, at once on threads(). Each begins
/// at a multiple of `multiple`, and none but a single one is smaller than `grain`, rounding apart.
/// The first exception from `body` reaches the caller; the shares that nobody took are left then.
template <class Body>
void parallel(std::int64_t count, std::int64_t grain, std::int64_t multiple, const Body& body) {
  const std::int64_t most = threads() == 1 ? 1 : count / std::max<std::int64_t>(grain, 1);
  const std::int64_t shares = std::min(threads() * detail::kSharesPerThread, most);
  if (threads() == 1 || shares <= 1) {
    body(std::int64_t{0}, count);
    return;
  }
  detail::run_shares(
      shares, count, multiple,
      [](const void* b, std::int64_t begin, std::int64_t end) {
        (*static_cast<const Body*>(b))(begin, end);
      },
      &body);
}

/// Elements of simple work below which a second thread costs more than it brings.
inline constexpr std::int64_t kGrain = 16384;

/// For element-wise kernels: body(i) for each i of [0, n).
template <class Body>
void parallel_elements(std::int64_t n, const Body& body) {
  parallel(n, kGrain, 64, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) body(i);
  });
}

}  // namespace rematch::cpu
