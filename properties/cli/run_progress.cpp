#include "properties/cli/run_progress.h"

#include <fmt/format.h>

namespace rematch::cli {

RunProgress::RunProgress(bool quiet)
    : status_(quiet), watcher_([this](const std::stop_token& stop) { watch(stop); }) {}

RunProgress::~RunProgress() {
  watcher_.request_stop();
  watcher_.join();
  status_.clear();
}

void RunProgress::note(std::string_view run) {
  const std::lock_guard lock(mutex_);
  run_ = run;
}

void RunProgress::watch(const std::stop_token& stop) {
  using Clock = std::chrono::steady_clock;
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, stop, std::chrono::milliseconds(100),
                            [&] { return stop.stop_requested(); })) {
    if (run_.empty()) continue;
    const double seconds = std::chrono::duration<double>(Clock::now() - started_).count();
    status_.show(seconds, std::nullopt, fmt::format("{}, {:.0f} s", run_, seconds));
  }
}

}  // namespace rematch::cli
