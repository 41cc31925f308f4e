#pragma once

// How frames work, rule by rule: README.md, sections 1 to 5.

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/autograd/saved_tensor.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/recomputation_scope.h"
#include "engine/checkpoint/tensor_hash.h"

namespace rematch {

class BackwardGroup;
class Holder;

/// One call of the non-reentrant checkpoint(): what it takes to compute its saved tensors again.
/// Lives as long as one of its placeholders does.
class Frame : public std::enable_shared_from_this<Frame> {
 public:
  Frame(const Function& function, const Tensors& inputs, const CheckpointOptions& options);

  /// Placeholder for the next tensor that the forward saves.
  std::unique_ptr<PackedTensor> add(const Tensor& t);
  /// The recomputed tensor of placeholder `index`; recomputes the region unless the running
  /// backward already did.
  Tensor fetch(int index);

  /// Runs `function`, for the first time. Once it is over a recomputation that saves more than it
  /// did is wrong. (Before, when the function itself differentiates, there is more to come.)
  Tensors forward(const Function& function, const Tensors& inputs);

 private:
  friend class RecomputationHooks;
  friend class Holder;
  struct Saved {
    Holder* holder = nullptr;  ///< nullptr once the graph has let go of it.
    Shape shape;
    DType dtype{};
    std::uint64_t hash = 0;
    std::size_t ops = 0;  ///< That the forward had run by then.
  };
  struct BackwardCache {
    std::uint64_t backward = 0;  ///< Or the group's.
    /// By placeholder; undefined when not there (any more).
    std::vector<Tensor> recomputed;
    std::vector<std::uint64_t> versions;
  };

  BackwardCache& cache_for(std::uint64_t backward, BackwardGroup* group);
  void drop_cache(std::uint64_t backward);
  void recompute(BackwardCache& cache);

  Function function_;
  CheckpointOptions options_;
  const Mechanics& mechanics_;
  EntryState entry_;
  Region region_;
  std::vector<SavedTensor> inputs_;
  std::vector<bool> requires_grad_;
  bool forward_is_over_ = false;
  std::vector<Saved> saved_;
  /// Hashes of saved tensors.
  LaterHashes later_hashes_;
  /// Ops of the forward until it last saved; none are counted where the region is not watched.
  std::size_t ops_at_last_save_ = 0;
  /// The function is a Sequence, and nothing came after the last save in the layer that made it: a
  /// recomputation can then end between two layers, which takes no exception.
  bool ends_between_layers_ = false;
  std::vector<std::unique_ptr<BackwardCache>> caches_;
};

/// Stands in the graph for a tensor that was dropped.
class Holder final : public PackedTensor {
 public:
  Holder(std::shared_ptr<Frame> frame, int index) : frame_(std::move(frame)), index_(index) {}
  ~Holder() override;
  Tensor unpack() override { return frame_->fetch(index_); }

 private:
  std::shared_ptr<Frame> frame_;
  int index_;
};

/// The non-reentrant variant; see checkpoint(). Grad mode is on and the arguments were checked.
Tensors checkpoint_non_reentrant(const Function& function, const Tensors& inputs,
                                 const CheckpointOptions& options);

}  // namespace rematch
