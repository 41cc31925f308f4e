#pragma once

#include <cstdint>
#include <vector>

#include "engine/ambient/ambient.h"
#include "engine/tensor/tensor.h"

namespace rematch {

/// Layers [begin, end) of a sequential model, as one unit of recomputation or, when not
/// `checkpointed`, run plain.
struct Segment {
  int begin = 0;
  int end = 0;
  bool checkpointed = true;
  friend bool operator==(const Segment&, const Segment&) = default;
};

enum class LastSegment : std::uint8_t { stored, checkpointed };

/// The replaceable steps of checkpointing. The engine uses correct_mechanics(); a deliberately
/// wrong implementation overrides one step. Implementations hold no state of their own.
class Mechanics {
 public:
  virtual ~Mechanics() = default;

  /// Random state at the entry of a region, to be put back for its replay.
  virtual Streams capture_rng(const Ambient& state) const;
  /// Before the replay: the state that the region began with.
  /// Streams that were added since are gone, so that a region which adds one on first use adds it
  /// again.
  virtual void restore_rng(Ambient& state, const Streams& captured) const;
  /// After the replay: the state that surrounded it. Must not throw.
  virtual void put_back_rng(Ambient& state, Streams surrounding) const;

  /// Before the replay: the settings that the region began with (its cache is not among them). The
  /// cache of a live scope of the same settings goes on being used; else the replay gets one of its
  /// own, which is emptied when it ends. What surrounded the replay is put back by itself. When
  /// this throws, nothing has changed.
  virtual void restore_autocast(Ambient& state, const Autocast& captured) const;

  /// Cuts n layers into k segments. PyTorch's rule: every segment but the last has floor(n / k)
  /// layers, the last takes the remainder too.
  virtual std::vector<Segment> partition(int layers, int segments, LastSegment last) const;

  /// The tensor that stands for a saved input in a replay: same values, no history, and the
  /// requires_grad that the input had.
  virtual Tensor bind_input(const Tensor& saved, bool requires_grad) const;

  /// Reentrant: the gradient that the replay left on a bound input.
  virtual Tensor return_gradient(const Tensor& bound) const;

  /// Non-reentrant: called with a recomputed tensor that was just handed to its node; the frame's
  /// reference is to be dropped.
  virtual void release(Tensor& recomputed) const;
};

const Mechanics& correct_mechanics();

}  // namespace rematch
