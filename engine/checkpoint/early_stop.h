#pragma once

#include <optional>
#include <utility>

#include "engine/ambient/ambient.h"

namespace rematch {

/// Decides early stop for every non-reentrant checkpoint that records in its scope, whatever their
/// options say; of scopes in scopes the innermost counts. nullopt leaves it to the options.
///
/// As in PyTorch, a checkpoint asks when it begins to record. That is in the forward, and where
/// backward runs does not matter then. But a reentrant checkpoint runs its function without
/// recording, so a non-reentrant one inside begins to record in the recomputation: only a scope
/// around the backward reaches it.
class EarlyStop {
 public:
  explicit EarlyStop(std::optional<bool> on) : previous_(std::exchange(ambient().early_stop, on)) {}
  ~EarlyStop() { ambient().early_stop = previous_; }
  EarlyStop(const EarlyStop&) = delete;
  EarlyStop& operator=(const EarlyStop&) = delete;

 private:
  std::optional<bool> previous_;
};

}  // namespace rematch
