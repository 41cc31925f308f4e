#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

namespace rematch {

/// Who runs the cases of a hunt, where and for how long. It changes nothing but times and
/// device_work of a hunt of a fixed number of cases.
struct Schedule {
  std::optional<double> seconds;
  /// A hunt that has judged fewer structures goes on when its seconds are over, kPatience times as
  /// long at most.
  std::uint64_t structures_at_least = 0;
  static constexpr double kPatience = 3;
  /// Threads, or processes, at least 1.
  int jobs = 1;
  /// If not empty: each job is a process, which this command of the shell starts, and which serves
  /// the same hunt (hunt/worker_process.h). It is for subjects that can end the process that they
  /// run in, or make it useless: on a device. Neither make_subject nor generate is then used.
  std::string worker;
  /// Longest that a case may take in such a process, and longest that it may take to start.
  double worker_limit = 60;
  /// Setting it ends the hunt early; findings so far are kept.
  const std::atomic<bool>* stop = nullptr;
  bool stopped() const { return stop != nullptr && stop->load(); }
};

}  // namespace rematch
