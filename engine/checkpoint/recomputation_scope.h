#pragma once

#include <optional>
#include <utility>

#include "engine/ambient/ranges.h"
#include "engine/autograd/autocast.h"
#include "engine/checkpoint/mechanics.h"
#include "engine/checkpoint/state_log.h"

namespace rematch {

/// State that a recomputation begins with, as the region did, and finds on its way.
struct EntryState {
  Autocast autocast;
  /// Absent when it is not to be preserved.
  std::optional<Streams> rng;
  StateLog states;

  EntryState(const Mechanics& mechanics, bool preserve_rng)
      : autocast(ambient().autocast.settings()) {
    if (preserve_rng) rng = mechanics.capture_rng(ambient());
  }
};

// README.md, section 1: which state a recomputation finds (AM1 to AM4, N18).
/// Ambient state for the time of a recomputation: grad mode on, marked as a recomputation, ops seen
/// by `watcher` alone, autocast and random state as when the region began, and layers' states as
/// its forward read them. Afterwards, thrown through or not, everything is as it was.
class RecomputationScope {
 public:
  RecomputationScope(const Mechanics& mechanics, const EntryState& entry, OpWatcher* watcher)
      : mechanics_(mechanics),
        grad_(true),
        watch_(watcher),
        cast_(mechanics, entry.autocast),
        states_(entry.states, mechanics) {
    if (!entry.rng) return;
    surrounding_ = ambient().streams;
    mechanics_.restore_rng(ambient(), *entry.rng);
  }
  ~RecomputationScope() {
    if (surrounding_) mechanics_.put_back_rng(ambient(), *std::move(surrounding_));
  }
  RecomputationScope(const RecomputationScope&) = delete;
  RecomputationScope& operator=(const RecomputationScope&) = delete;

 private:
  /// Undone by itself when the constructor above throws.
  class Mark {
   public:
    Mark() : before_(std::exchange(ambient().recomputing, true)) {}
    ~Mark() { ambient().recomputing = before_; }
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

  class Cast {
   public:
    Cast(const Mechanics& mechanics, const Autocast& captured) : before_(ambient().autocast) {
      mechanics.restore_autocast(ambient(), captured);
    }
    ~Cast() {
      const std::shared_ptr<CastCache>& own = ambient().autocast.cache;
      if (own && own != before_.cache) own->clear();
      ambient().autocast = std::move(before_);
    }
    Cast(const Cast&) = delete;
    Cast& operator=(const Cast&) = delete;

   private:
    Autocast before_;
  };

  const Mechanics& mechanics_;
  Range range_{"recomputation"};
  GradMode grad_;
  Mark mark_;
  Watch watch_;
  Cast cast_;
  StateRecall states_;
  std::optional<Streams> surrounding_;
};

}  // namespace rematch
