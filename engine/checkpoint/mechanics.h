#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/ambient/ambient.h"
#include "engine/checkpoint/region.h"
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
/// wrong implementation overrides one step. One object serves one thread.
class Mechanics {
 public:
  virtual ~Mechanics() = default;

  /// Random state at the entry of a region, to be put back for its recomputation.
  virtual Streams capture_rng(const Ambient& state) const;
  /// Before the recomputation: the state that the region began with.
  /// Streams that were added since are gone, so that a region which adds one on first use adds it
  /// again.
  virtual void restore_rng(Ambient& state, const Streams& captured) const;
  /// After the recomputation: the state that surrounded it. Must not throw.
  virtual void put_back_rng(Ambient& state, Streams surrounding) const;

  /// Before the recomputation: the settings that the region began with (its cache is not among
  /// them). The cache of a live scope of the same settings goes on being used; else the
  /// recomputation gets one of its own, which is emptied when it ends. The settings around
  /// the recomputation are put back by themselves. When this throws, nothing has changed.
  virtual void restore_autocast(Ambient& state, const Autocast& captured) const;

  /// The value that a recomputation reads of a layer's state, the one at `index` of those that its
  /// forward read; the state is `now` meanwhile.
  virtual Tensor recall_state(std::span<const Tensor> read, std::size_t index,
                              const Tensor& now) const;

  /// Cuts n layers into k segments. PyTorch's rule: every segment but the last has floor(n / k)
  /// layers, the last takes the remainder too.
  virtual std::vector<Segment> partition(int layers, int segments, LastSegment last) const;

  /// The tensors that stand for the saved inputs in a recomputation: same values, no history, and
  /// the requires_grad that each input had.
  virtual Tensors bind_inputs(std::span<const Tensor> saved,
                              const std::vector<bool>& requires_grad) const;

  /// Non-reentrant: whether a recomputation that has saved `saved` of the forward's `expected`
  /// tensors may stop. Called after each save, if early stop is on.
  virtual bool ends_recomputation(int saved, int expected) const;

  /// Non-reentrant: the key under which a recomputation is stored. Backwards with the same key
  /// share it; 0 means no backward. `backward` is the number of the backward, or of its group.
  virtual std::uint64_t key_of_recomputation(std::uint64_t backward) const;

  /// Non-reentrant: whether unused recomputed tensors are dropped when their backward ends.
  virtual bool drops_at_end() const;

  /// Whether a recomputation compares the versions of its ops' operands with those of the forward.
  virtual bool compares_versions() const;

  /// Reentrant: runs backward over the graph of the recomputation, from the outputs that require
  /// grad and received a gradient (an unused output has an undefined gradient). `bound` are the
  /// inputs of the recomputation. Throws std::invalid_argument if there is no such output.
  virtual void differentiate(Tensors outputs, std::span<Tensor> gradients,
                             std::span<const Tensor> bound) const;

  /// Reentrant: the gradient that the recomputation left on bound input `index`.
  virtual Tensor return_gradient(std::span<const Tensor> bound, std::size_t index) const;

  /// Non-reentrant: drops the frame's reference to a recomputed tensor that its node has just
  /// received.
  virtual void release(Tensor& recomputed) const;
};

const Mechanics& correct_mechanics();

}  // namespace rematch
