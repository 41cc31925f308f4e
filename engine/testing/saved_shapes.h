#pragma once

#include <vector>

#include "engine/autograd/saved_tensor.h"

namespace rematch::testing {

/// The shapes of what ops save while it lives, in their order.
class SavedShapes {
 public:
  const std::vector<Shape>& seen() const { return seen_; }

 private:
  std::vector<Shape> seen_;
  FunctionHooks hooks_{[this](const Tensor& t) {
                         seen_.push_back(t.shape());
                         return t;
                       },
                       [](const Tensor& t) { return t; }};
  HookScope scope_{&hooks_};
};

}  // namespace rematch::testing
