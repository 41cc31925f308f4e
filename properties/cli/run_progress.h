#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "properties/output/terminal.h"

namespace rematch::cli {

/// Shows which run is going on, and for how long, while the thread that runs it cannot.
class RunProgress {
 public:
  explicit RunProgress(bool quiet);
  ~RunProgress();
  RunProgress(const RunProgress&) = delete;
  RunProgress& operator=(const RunProgress&) = delete;

  /// From now on this is going on.
  void note(std::string_view run);

 private:
  void watch(const std::stop_token& stop);

  const std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  StatusLine status_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::string run_;
  /// Last, so that it ends before what it reads.
  std::jthread watcher_;
};

}  // namespace rematch::cli
