#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/testing/passing_watcher.h"

namespace rematch::testing {

/// Notes the names of the ops that run in a scope.
class OpNames final : public PassingWatcher {
 public:
  bool recall(const OpCall& call, std::span<Tensor> results) override {
    names.emplace_back(call.op);
    return PassingWatcher::recall(call, results);
  }

  std::vector<std::string> names;
};

}  // namespace rematch::testing
