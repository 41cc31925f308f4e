#pragma once

#include <stdexcept>
#include <string>

#include "engine/tensor/tensor.h"

namespace rematch {

/// A recomputation differed from its forward.
class CheckpointError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// `float32 [4, 3]`, as errors tell a tensor.
inline std::string text_of(const Tensor& t) {
  return std::string(to_string(t.dtype())) + " " + to_string(t.shape());
}

}  // namespace rematch
