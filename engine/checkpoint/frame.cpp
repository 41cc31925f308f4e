#include "engine/checkpoint/frame.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/autograd/backward.h"
#include "engine/checkpoint/backward_group.h"
#include "engine/checkpoint/sequence.h"
#include "engine/checkpoint/tensor_hash.h"

namespace rematch {
namespace {

std::string label(int index, const Shape& shape, DType dtype) {
  return "saved tensor " + std::to_string(index) + " (" + std::string(to_string(dtype)) + " " +
         to_string(shape) + ")";
}

/// During the forward: every saved tensor becomes a placeholder.
class FrameHooks final : public SavedTensorHooks {
 public:
  explicit FrameHooks(Frame& frame) : frame_(frame) {}
  std::unique_ptr<PackedTensor> pack(const Tensor& t) override { return frame_.add(t); }

 private:
  Frame& frame_;
};

}  // namespace

/// During a recomputation: saved tensors are collected for the forward's placeholders.
class RecomputationHooks final : public SavedTensorHooks {
 public:
  RecomputationHooks(Frame& frame, Frame::BackwardCache& cache, Region::Recomputation& ops)
      : frame_(frame), cache_(cache), ops_(ops) {}

  std::unique_ptr<PackedTensor> pack(const Tensor& t) override {
    if (ops_.over()) throw RecomputationComplete{&frame_.region_};
    const int index = count_++;
    const auto expected = static_cast<int>(frame_.saved_.size());
    if (index >= expected) {
      const bool excused = frame_.options_.determinism == DeterminismCheck::none;
      if (excused || !frame_.forward_is_over_) return nullptr;
      throw CheckpointError(
          "[checkpoint] the recomputation saves more tensors than the forward's " +
          std::to_string(expected) + ": " + label(index, t.shape(), t.dtype()) +
          " has no counterpart; the function must do the same each time");
    }
    const Frame::Saved& saved = frame_.saved_[static_cast<std::size_t>(index)];
    if (saved.holder != nullptr) {
      check(saved, index, t);
      Tensor& slot = cache_.recomputed[static_cast<std::size_t>(index)];
      slot = t.detach();
      slot.storage()->hold();
      cache_.versions[static_cast<std::size_t>(index)] = t.version();
    }
    // README.md, section 2: early stop (N3).
    if (frame_.options_.early_stop && frame_.mechanics_.ends_recomputation(count_, expected)) {
      if (!frame_.ends_between_layers_) throw RecomputationComplete{&frame_.region_};
      ops_.end();
    }
    return nullptr;
  }

  int count() const { return count_; }

  /// Throws for the first saved tensor whose bits changed, if that is not known yet.
  void finish_checks() {
    frame_.later_hashes_.finish();
    later_hashes_.finish();
    for (const auto& [index, hash] : *hashes_) check_bits(index, hash);
  }

 private:
  void check(const Frame::Saved& saved, int index, const Tensor& t) {
    if (frame_.options_.determinism == DeterminismCheck::none) return;
    if (!(saved.shape == t.shape()) || saved.dtype != t.dtype()) {
      throw CheckpointError("[checkpoint] the recomputation differs from the forward: " +
                            label(index, saved.shape, saved.dtype) + " expected, got " +
                            label(index, t.shape(), t.dtype()));
    }
    if (frame_.options_.determinism != DeterminismCheck::values) return;
    if (t.device() == Device::cpu) return check_bits(index, tensor_hash(t));
    // A device is waited for once, at the end.
    later_hashes_.read(
        t, [hashes = hashes_, index](std::uint64_t hash) { hashes->emplace_back(index, hash); });
  }
  void check_bits(int index, std::uint64_t hash) const {
    const Frame::Saved& saved = frame_.saved_[static_cast<std::size_t>(index)];
    if (saved.hash == hash) return;
    const std::string by =
        saved.ops == 0 ? "" : ", saved after " + frame_.region_.last_of(saved.ops) + ",";
    throw CheckpointError("[checkpoint] the recomputation differs from the forward: the bits of " +
                          label(index, saved.shape, saved.dtype) + by +
                          " changed; look for random draws without preserve_rng, weights "
                          "changed since the forward, or inputs changed in place");
  }

  Frame& frame_;
  Frame::BackwardCache& cache_;
  Region::Recomputation& ops_;
  int count_ = 0;
  LaterHashes later_hashes_;
  /// Hashes of the saved tensors, by index; readers may outlive this.
  using Hashes = std::vector<std::pair<int, std::uint64_t>>;
  std::shared_ptr<Hashes> hashes_ = std::make_shared<Hashes>();
};

Frame::Frame(const Function& function, const Tensors& inputs, const CheckpointOptions& options)
    : function_(function),
      options_(options),
      mechanics_(mechanics_of(options)),
      entry_(mechanics_, options.preserve_rng),
      region_(options.determinism, options.policy, mechanics_.compares_versions()) {
  options_.early_stop = ambient().early_stop.value_or(options_.early_stop);
  inputs_.resize(inputs.size());
  requires_grad_.reserve(inputs.size());
  // README.md, section 5: nesting (N13).
  // Through the surrounding hooks: an enclosing checkpoint then owns these inputs, and an
  // enclosing recomputation may end right here.
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    requires_grad_.push_back(inputs[i].requires_grad());
    inputs_[i].save(inputs[i]);
  }
}

std::unique_ptr<PackedTensor> Frame::add(const Tensor& t) {
  auto holder = std::make_unique<Holder>(shared_from_this(), static_cast<int>(saved_.size()));
  saved_.push_back({holder.get(), t.shape(), t.dtype(), 0, region_.ops()});
  if (options_.determinism == DeterminismCheck::values) {
    later_hashes_.read(t, [frame = weak_from_this(), i = saved_.size() - 1](std::uint64_t hash) {
      if (const auto alive = frame.lock()) alive->saved_[i].hash = hash;
    });
  }
  ops_at_last_save_ = region_.seen();
  // Not before its layer has returned.
  ends_between_layers_ = false;
  return holder;
}

Tensors Frame::forward(const Function& function, const Tensors& inputs) {
  FrameHooks hooks(*this);
  HookScope scope(&hooks);
  StateRecording states(entry_.states);
  Region::Forward watcher(region_, inputs);
  const auto run = [&] {
    const auto* layers = function.target<Sequence>();
    if (layers == nullptr || !region_.watched()) return function(inputs);
    std::size_t saved = 0;
    return layers->run(inputs, [&] {
      if (saved_.size() != saved) ends_between_layers_ = region_.seen() == ops_at_last_save_;
      saved = saved_.size();
      return true;
    });
  };
  Tensors outputs = run();
  forward_is_over_ = true;
  entry_.states.close();
  region_.forward_is_over();
  return outputs;
}

// README.md, section 3: who owns what (N5).
Holder::~Holder() {
  const auto index = static_cast<std::size_t>(index_);
  // Where memory ran out, the frame has no entry for it.
  if (index < frame_->saved_.size()) frame_->saved_[index].holder = nullptr;
  for (auto& cache : frame_->caches_) {
    // A cache from before the forward was over knows fewer.
    if (index >= cache->recomputed.size()) continue;
    Tensor& t = cache->recomputed[index];
    if (!t.defined()) continue;
    t.storage()->drop();
    t = Tensor();
  }
}

// README.md, section 4: the key of a recomputation (N2, N15).
Frame::BackwardCache& Frame::cache_for(std::uint64_t backward, BackwardGroup* group) {
  for (auto& cache : caches_) {
    if (cache->backward == backward) return *cache;
  }
  caches_.push_back(std::make_unique<BackwardCache>());
  BackwardCache& cache = *caches_.back();
  cache.backward = backward;
  cache.recomputed.resize(saved_.size());
  cache.versions.resize(saved_.size());
  // Whatever this backward, or its group, does not use must not outlive it.
  const auto drop = [frame = weak_from_this(), backward] {
    if (const auto alive = frame.lock()) alive->drop_cache(backward);
  };
  const bool drops = mechanics_.drops_at_end();
  if (drops && group != nullptr) group->at_end(drop);
  if (drops && group == nullptr) at_end_of_backward(drop);
  try {
    recompute(cache);
  } catch (...) {
    drop_cache(backward);
    throw;
  }
  return cache;
}

void Frame::drop_cache(std::uint64_t backward) {
  std::erase_if(caches_, [&](const std::unique_ptr<BackwardCache>& cache) {
    if (cache->backward != backward) return false;
    for (Tensor& t : cache->recomputed) {
      if (t.defined()) t.storage()->drop();
    }
    return true;
  });
}

Tensor Frame::fetch(int index) {
  // Tensors saved later in the forward would be missing from a recomputation that the group shares.
  BackwardGroup* group = forward_is_over_ ? BackwardGroup::current() : nullptr;
  const std::uint64_t backward =
      mechanics_.key_of_recomputation(group != nullptr ? group->id() : current_backward());
  BackwardCache& cache = cache_for(backward, group);
  const auto at = static_cast<std::size_t>(index);
  const Saved& saved = saved_[at];
  if (at >= cache.recomputed.size() || !cache.recomputed[at].defined()) {
    throw CheckpointError("[checkpoint] " + label(index, saved.shape, saved.dtype) +
                          " was unpacked twice in one " +
                          (group != nullptr ? "group of backwards" : "backward") +
                          ", or the recomputation did not produce it");
  }
  Tensor& slot = cache.recomputed[at];
  // Whatever was agreed not to be checked: a node must not read past the end of what it gets.
  if (!(slot.shape() == saved.shape) || slot.dtype() != saved.dtype) {
    throw CheckpointError("[checkpoint] the recomputation differs from the forward: " +
                          label(index, saved.shape, saved.dtype) + " expected, got " +
                          label(index, slot.shape(), slot.dtype()));
  }
  if (slot.version() != cache.versions[at]) {
    throw CheckpointError(
        "[checkpoint] " + label(index, saved.shape, saved.dtype) +
        " was changed by an in-place operation since the recomputation: version " +
        std::to_string(cache.versions[at]) + " expected, got " + std::to_string(slot.version()));
  }
  Tensor result = slot;
  mechanics_.release(slot);
  if (!slot.defined()) result.storage()->drop();
  // Outside of a backward every access stands for itself.
  if (backward == 0) drop_cache(0);
  return result;
}

void Frame::recompute(BackwardCache& cache) {
  Tensors saved;
  saved.reserve(inputs_.size());
  for (const SavedTensor& input : inputs_) saved.push_back(input.get("checkpoint"));
  const Tensors bound = mechanics_.bind_inputs(saved, requires_grad_);
  saved.clear();
  Region::Recomputation watcher(region_, bound);
  RecomputationHooks hooks(*this, cache, watcher);
  try {
    HookScope scope(&hooks);
    RecomputationScope recomputing(mechanics_, entry_, region_.watched() ? &watcher : nullptr);
    if (const auto* layers = function_.target<Sequence>()) {
      layers->run(bound, [&] { return !watcher.over(); });
    } else {
      function_(bound);
    }
    if (!watcher.over()) watcher.finish();
  } catch (const RecomputationComplete& done) {
    if (done.region != &region_) {
      hooks.finish_checks();
      throw;
    }
  } catch (...) {
    // An earlier change is nearer to the cause.
    hooks.finish_checks();
    throw;
  }
  hooks.finish_checks();
  if (hooks.count() < static_cast<int>(saved_.size()) &&
      options_.determinism != DeterminismCheck::none) {
    throw CheckpointError("[checkpoint] the recomputation saved " + std::to_string(hooks.count()) +
                          " tensors, the forward " + std::to_string(saved_.size()) +
                          "; the function must do the same each time");
  }
  region_.served();
}

Tensors checkpoint_non_reentrant(const Function& function, const Tensors& inputs,
                                 const CheckpointOptions& options) {
  return std::make_shared<Frame>(function, inputs, options)->forward(function, inputs);
}

}  // namespace rematch
