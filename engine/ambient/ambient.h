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
class StateReader;

/// Receives what actually runs: used to compare masks and to count. Must not throw.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  /// An op is about to compute new tensors. Not called for an op whose results are recalled.
  virtual void on_compute(std::string_view /*op*/) {}
  /// The result tensors of an op, computed or recalled.
  virtual void on_results(std::string_view /*op*/, std::span<const Tensor> /*results*/) {}
  /// The graph is about to save `t`; no hook has seen it yet.
  virtual void on_save(const Tensor& /*t*/) {}
  /// `before` is the stream before the draw. `drawn` holds the bits drawn for `elements` elements:
  /// a uint8 mask, or noise in the operand's dtype.
  virtual void on_draw(const Generator& before, std::int64_t elements,
                       std::span<const std::byte> drawn) = 0;
  /// For a draw whose bits are not on the host yet: returns what is to be called with them later,
  /// in place of on_draw(). If it returns nothing, the host waits for them.
  virtual MemoryResource::Reader on_later_draw(const Generator& /*before*/,
                                               std::int64_t /*elements*/) {
    return {};
  }
  /// A backward has run `node` and passed its gradients on.
  virtual void on_gradients(const Node& /*node*/) {}
};

/// The autocast state; see AutocastScope.
struct Autocast {
  bool enabled = false;
  /// Target dtype for float32 operands; only bfloat16 so far.
  DType dtype = DType::bfloat16;
  bool cache_enabled = true;
  /// The cache of the outermost scope; nullptr outside of scopes.
  std::shared_ptr<CastCache> cache = nullptr;

  /// Whether ops compute the same under both; ignores the contents of the cache.
  bool same_settings(const Autocast& other) const {
    return enabled == other.enabled && dtype == other.dtype && cache_enabled == other.cache_enabled;
  }
  /// Without the cache.
  Autocast settings() const { return {enabled, dtype, cache_enabled}; }
};

/// All implicit state: what code depends on without receiving it as an argument. One per thread.
/// The only other implicit state is the backward pass that the thread is in. Everything that a
/// recomputation must restore is a member here.
struct Ambient {
  bool grad_enabled = true;
  Streams streams;
  Autocast autocast;
  /// Innermost pack/unpack hooks for saved tensors, or nullptr.
  SavedTensorHooks* hooks = nullptr;
  /// Innermost watcher of ops, or nullptr.
  OpWatcher* ops = nullptr;
  /// Innermost reader of layers' states, or nullptr.
  StateReader* states = nullptr;
  std::shared_ptr<Ledger> ledger = std::make_shared<Ledger>();
  RunObserver* observer = nullptr;
  /// A recomputation is running: layers must not update their state (running statistics, a scale) a
  /// second time.
  bool recomputing = false;
  /// Number of the running backward pass; 0 outside of one.
  std::uint64_t backward_id = 0;
  /// The active BackwardGroup, or nullptr.
  BackwardGroup* backward_group = nullptr;
  /// Set by an EarlyStop scope.
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
