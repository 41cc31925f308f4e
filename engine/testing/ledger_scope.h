#pragma once

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <memory>

#include "engine/ambient/ambient.h"

namespace rematch::testing {

/// Test fixture: the test runs in an ambient state of its own, with a new ledger that poisons what
/// is freed, and must leave it as it found it: no live byte, recording on, no autocast, no hooks,
/// no watcher of ops, no backward.
class LedgerScope {
 public:
  LedgerScope() : surrounding_(ambient()) {
    ambient() = Ambient{};
    ledger().set_poison(true);
  }
  ~LedgerScope() {
    // Held by value: the last tensor to die may be the one that keeps the ledger.
    const Ambient left = ambient();
    ambient() = surrounding_;
    CHECK(left.ledger->live() == 0);
    std::array<std::int64_t, kTagCount> by_tag{};
    for (std::size_t i = 0; i < by_tag.size(); ++i)
      by_tag[i] = left.ledger->live(static_cast<Tag>(i));
    CHECK(by_tag == std::array<std::int64_t, kTagCount>{});
    CHECK(left.grad_enabled);
    CHECK(left.hooks == nullptr);
    CHECK(left.ops == nullptr);
    CHECK(left.observer == nullptr);
    CHECK_FALSE(left.recomputing);
    CHECK(left.autocast.same_settings(Autocast{}));
    CHECK(left.autocast.cache == nullptr);
    CHECK(left.backward_id == 0);
    CHECK(left.backward_group == nullptr);
    CHECK_FALSE(left.early_stop.has_value());
  }
  LedgerScope(const LedgerScope&) = delete;
  LedgerScope& operator=(const LedgerScope&) = delete;

  static Ledger& ledger() { return *ambient().ledger; }

 private:
  Ambient surrounding_;
};

}  // namespace rematch::testing
