#pragma once

#include <optional>
#include <utility>

#include "engine/ambient/ambient.h"

namespace rematch {

/// Decides early stop for every non-reentrant checkpoint whose forward runs in its scope, whatever
/// their options say; of scopes in scopes the innermost counts. nullopt leaves it to the options.
/// Where backward runs does not matter.
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
