#pragma once

#include <optional>
#include <utility>

#include "engine/checkpoint/mechanics.h"

namespace rematch {

/// Ambient state for the time of a replay: grad mode on, marked as a replay, and the random state
/// that the region began with, if it was captured. Afterwards, thrown through or not, everything is
/// as it was.
class ReplayScope {
 public:
  ReplayScope(const Mechanics& mechanics, const std::optional<Streams>& captured)
      : mechanics_(mechanics), grad_(true) {
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

  const Mechanics& mechanics_;
  GradMode grad_;
  Mark mark_;
  std::optional<Streams> surrounding_;
};

}  // namespace rematch
