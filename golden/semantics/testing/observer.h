#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/ambient/ambient.h"

namespace rematch::golden {

/// Notes the kernels that run, and what random ones draw, while it is in scope.
class Observer final : public RunObserver {
 public:
  Observer() : outer_(std::exchange(ambient().observer, this)) {}
  ~Observer() override { ambient().observer = outer_; }
  Observer(const Observer&) = delete;
  Observer& operator=(const Observer&) = delete;

  void on_compute(std::string_view op) override { kernels.emplace_back(op); }
  void on_draw(const Generator& /*before*/, std::int64_t /*elements*/,
               std::span<const std::byte> drawn) override {
    masks.emplace_back(drawn.begin(), drawn.end());
  }
  int count(std::string_view op) const {
    int n = 0;
    for (const std::string& kernel : kernels) n += kernel == op;
    return n;
  }

  std::vector<std::string> kernels;
  std::vector<std::vector<std::byte>> masks;

 private:
  RunObserver* outer_;
};

}  // namespace rematch::golden
