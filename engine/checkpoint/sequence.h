#pragma once

#include <span>
#include <vector>

#include "engine/checkpoint/checkpoint.h"

namespace rematch {

/// The result of compose(): functions one after the other, as a Function that can be left between
/// two of them.
class Sequence {
 public:
  explicit Sequence(std::span<const Function> functions)
      : functions_(functions.begin(), functions.end()) {}

  Tensors operator()(const Tensors& inputs) const {
    return run(inputs, [] { return true; });
  }

  /// Calls `go_on` after each function; where it returns false, what that function returned is
  /// what run() returns.
  template <class GoOn>
  Tensors run(const Tensors& inputs, const GoOn& go_on) const {
    Tensors values = inputs;
    for (const Function& f : functions_) {
      values = f(values);
      if (!go_on()) break;
    }
    return values;
  }

 private:
  std::vector<Function> functions_;
};

}  // namespace rematch
