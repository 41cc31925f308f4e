#pragma once

#include "engine/checkpoint/mechanics.h"

namespace rematch {

/// Ambient state for the time of a replay: grad mode on, marked as a replay, and the random state
/// that the region began with. Afterwards, thrown through or not, everything is as it was.
class ReplayScope {
 public:
  ReplayScope(const Mechanics& mechanics, bool preserve_rng, const std::vector<Generator>& captured)
      : mechanics_(mechanics),
        preserve_rng_(preserve_rng),
        grad_(true),
        replaying_(ambient().replaying) {
    ambient().replaying = true;
    if (!preserve_rng_) return;
    surrounding_ = ambient().streams.states();
    mechanics_.restore_rng(ambient(), captured);
  }
  ~ReplayScope() {
    if (preserve_rng_) mechanics_.put_back_rng(ambient(), surrounding_);
    ambient().replaying = replaying_;
  }
  ReplayScope(const ReplayScope&) = delete;
  ReplayScope& operator=(const ReplayScope&) = delete;

 private:
  const Mechanics& mechanics_;
  bool preserve_rng_;
  GradMode grad_;
  bool replaying_;
  std::vector<Generator> surrounding_;
};

}  // namespace rematch
