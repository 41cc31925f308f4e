#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "engine/math/dtype.h"
#include "engine/memory/ledger.h"
#include "engine/random/generator.h"

namespace rematch {

class Tensor;
class BackwardGroup;
class CastCache;
class Node;
class OpWatcher;
class SavedTensorHooks;

/// Told of what really runs: used to compare masks and to count. Must not throw.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  /// An op that makes tensors is about to compute them; one whose results are recalled is not.
  virtual void on_compute(std::string_view /*op*/) {}
  /// The tensors that an op has made, computed or recalled.
  virtual void on_results(std::string_view /*op*/, std::span<const Tensor> /*results*/) {}
  /// A tensor that the graph is about to save, before any hook sees it.
  virtual void on_save(const Tensor& /*t*/) {}
  /// `before` is the stream before the draw; `drawn` the bits of what was drawn for `elements`
  /// elements: a uint8 mask, or noise in the dtype of the operand.
  virtual void on_draw(const Generator& before, std::int64_t elements,
                       std::span<const std::byte> drawn) = 0;
  /// A backward has run `node` and handed its gradients on.
  virtual void on_gradients(const Node& /*node*/) {}
};

/// What ops compute in; see AutocastScope.
struct Autocast {
  bool enabled = false;
  /// What float32 operands are cast to; bfloat16 is the only one so far.
  DType dtype = DType::bfloat16;
  bool cache_enabled = true;
  /// Of the outermost scope; nullptr outside of scopes.
  std::shared_ptr<CastCache> cache = nullptr;

  /// Whether ops compute alike under both: all but the cache's contents.
  bool same_settings(const Autocast& other) const {
    return enabled == other.enabled && dtype == other.dtype && cache_enabled == other.cache_enabled;
  }
  /// Without the cache.
  Autocast settings() const { return {enabled, dtype, cache_enabled}; }
};

/// All state that code depends on without being handed it. One per worker thread; apart from
/// the backward pass that a thread is in, the engine has no other global that steers it. What a
/// recomputation must restore is a member here.
struct Ambient {
  bool grad_enabled = true;
  Streams streams;
  Autocast autocast;
  /// Innermost pack/unpack hooks for saved tensors, or nullptr.
  SavedTensorHooks* hooks = nullptr;
  /// Innermost watcher of ops, or nullptr.
  OpWatcher* ops = nullptr;
  std::shared_ptr<Ledger> ledger = std::make_shared<Ledger>();
  RunObserver* observer = nullptr;
  /// A region is being run again: layers that carry state along (running statistics) must not
  /// update it a second time.
  bool recomputing = false;
  /// Identity of the running backward pass; 0 outside of one.
  std::uint64_t backward_id = 0;
  /// The group that backward passes belong to, or nullptr.
  BackwardGroup* backward_group = nullptr;
  /// What EarlyStop decided.
  std::optional<bool> early_stop;
};

/// The calling thread's ambient state.
Ambient& ambient();

/// Sets grad mode for a scope.
class GradMode {
 public:
  explicit GradMode(bool enabled) : previous_(ambient().grad_enabled) {
    ambient().grad_enabled = enabled;
  }
  ~GradMode() { ambient().grad_enabled = previous_; }
  GradMode(const GradMode&) = delete;
  GradMode& operator=(const GradMode&) = delete;

 private:
  bool previous_;
};

}  // namespace rematch
