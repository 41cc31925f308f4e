#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "engine/tensor/tensor.h"

namespace rematch {

/// A tensor that is written to, in place and counted as such, and written back when this ends.
class WrittenTo {
 public:
  explicit WrittenTo(const Tensor& t);
  ~WrittenTo();
  WrittenTo(const WrittenTo&) = delete;
  WrittenTo& operator=(const WrittenTo&) = delete;

 private:
  void write(std::span<const std::byte> bytes);

  Tensor tensor_;
  std::vector<std::byte> before_;
};

/// Names of the ambient state that is not as a run finds it: "grad mode, hooks"; empty when all is.
std::string left_behind();

}  // namespace rematch
