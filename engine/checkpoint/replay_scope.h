#pragma once

#include <optional>
#include <utility>

#include "engine/checkpoint/mechanics.h"

namespace rematch {

/// Ambient state for the time of a replay: grad mode on, marked as a replay, ops seen by `watcher`
/// alone, and the random state that the region began with, if it was captured. Afterwards, thrown
/// through or not, everything is as it was.
class ReplayScope {
 public:
  ReplayScope(const Mechanics& mechanics, const std::optional<Streams>& captured,
              OpWatcher* watcher)
      : mechanics_(mechanics), grad_(true), watch_(watcher) {
    if (!captured) return;
    surrounding_ = ambient().streams;
    mechanics_.restore_rng(ambient(), *captured);
  }
  ~ReplayScope() {
    if (surrounding_) mechanics_.put_back_rng(ambient(), *std::move(surrounding_));
  }
  ReplayScope(const ReplayScope&) = delete;
  ReplayScope& operator=(const ReplayScope&) = delete;

 private:
  /// Undone by itself when the constructor above throws.
  class Mark {
   public:
    Mark() : before_(std::exchange(ambient().replaying, true)) {}
    ~Mark() { ambient().replaying = before_; }
    Mark(const Mark&) = delete;
    Mark& operator=(const Mark&) = delete;

   private:
    bool before_;
  };

  class Watch {
   public:
    explicit Watch(OpWatcher* watcher) : before_(std::exchange(ambient().ops, watcher)) {}
    ~Watch() { ambient().ops = before_; }
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

   private:
    OpWatcher* before_;
  };

  const Mechanics& mechanics_;
  GradMode grad_;
  Mark mark_;
  Watch watch_;
  std::optional<Streams> surrounding_;
};

}  // namespace rematch
