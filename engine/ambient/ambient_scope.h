#pragma once

#include <memory>
#include <utility>

#include "engine/ambient/ambient.h"

namespace rematch {

/// A fresh ambient state for a scope: new tensors come from `ledger`, every random stream begins at
/// `seed`. Afterwards the surrounding state is back as it was.
class AmbientScope {
 public:
  explicit AmbientScope(std::shared_ptr<Ledger> ledger, std::uint64_t seed = 0)
      // A copy: what follows may throw, and then nothing has changed.
      : outer_(ambient()) {
    Ambient fresh;
    fresh.ledger = std::move(ledger);
    fresh.streams.seed(seed);
    ambient() = std::move(fresh);
  }
  ~AmbientScope() { ambient() = std::move(outer_); }
  AmbientScope(const AmbientScope&) = delete;
  AmbientScope& operator=(const AmbientScope&) = delete;

 private:
  Ambient outer_;
};

}  // namespace rematch
