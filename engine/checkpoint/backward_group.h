#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace rematch {

/// All backward passes in its scope share recomputations: each non-reentrant checkpoint is
/// recomputed at most once in the group, instead of once in each backward. A tensor
/// that was recomputed and not yet used stays until the group ends.
///
/// The passes must not overlap: a saved tensor serves one of them, and asking for it again throws
/// CheckpointError. Without effect on reentrant checkpoints. Throws std::invalid_argument inside
/// another group. Lives and dies on one thread.
class BackwardGroup {
 public:
  BackwardGroup();
  ~BackwardGroup();
  BackwardGroup(const BackwardGroup&) = delete;
  BackwardGroup& operator=(const BackwardGroup&) = delete;

  /// The group that the calling thread is in, or nullptr.
  static BackwardGroup* current();
  /// No other group, and no backward pass, of this thread has it.
  std::uint64_t id() const { return id_; }
  /// Runs `callback` when the group ends.
  void at_end(std::function<void()> callback) { at_end_.push_back(std::move(callback)); }

 private:
  std::uint64_t id_;
  std::vector<std::function<void()>> at_end_;
};

}  // namespace rematch
