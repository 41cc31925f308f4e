#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "engine/ambient/ambient.h"

namespace rematch::testing {

/// Counts the ops that compute in a scope; those whose results are recalled do not.
class ComputedOps final : public RunObserver {
 public:
  ComputedOps() { ambient().observer = this; }
  ~ComputedOps() override { ambient().observer = nullptr; }
  ComputedOps(const ComputedOps&) = delete;
  ComputedOps& operator=(const ComputedOps&) = delete;

  void on_compute(std::string_view /*op*/) override { ++count; }
  void on_draw(const Generator&, std::int64_t, std::span<const std::byte>) override {}

  std::int64_t count = 0;
};

}  // namespace rematch::testing
