#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "properties/hunt/fault_hunts.h"

namespace rematch {

inline bool stopped(const FaultHuntOptions& options) {
  return options.stop != nullptr && options.stop->load();
}

/// One result for each fault, in their order, made on `jobs` threads.
template <class Result, class Make>
std::vector<Result> for_each_fault(const std::vector<const Fault*>& faults,
                                   const FaultHuntOptions& options, Make make) {
  std::vector<Result> results(faults.size());
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::size_t done = 0;
  int running = options.jobs;
  std::condition_variable changed;
  std::exception_ptr thrown;
  const auto work = [&] {
    try {
      for (std::size_t i = next++; i < faults.size() && !stopped(options); i = next++) {
        Result result = make(*faults[i], options);
        const std::lock_guard lock(mutex);
        if (stopped(options)) return;
        results[i] = std::move(result);
        ++done;
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!thrown) thrown = std::current_exception();
    }
    const std::lock_guard lock(mutex);
    --running;
    changed.notify_all();
  };
  {
    std::vector<std::jthread> threads;
    threads.reserve(static_cast<std::size_t>(options.jobs));
    for (int i = 0; i < options.jobs; ++i) threads.emplace_back(work);
    std::unique_lock lock(mutex);
    while (!changed.wait_for(lock, std::chrono::milliseconds(100), [&] { return running == 0; })) {
      if (options.progress) options.progress(done);
    }
  }
  if (thrown) std::rethrow_exception(thrown);
  std::erase_if(results, [](const Result& r) { return r.fault == nullptr; });
  return results;
}

}  // namespace rematch
