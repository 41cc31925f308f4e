#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/tensor/tensor.h"

namespace rematch {

/// A tensor that is written to, in place, and written back when this ends.
class WrittenTo {
 public:
  enum class What : std::uint8_t {
    everything,  ///< Counted as a write.
    last,        ///< The last element, past all that counts writes.
  };
  explicit WrittenTo(const Tensor& t, What what = What::everything);
  ~WrittenTo();
  WrittenTo(const WrittenTo&) = delete;
  WrittenTo& operator=(const WrittenTo&) = delete;

 private:
  void write(std::span<const std::byte> bytes);

  Tensor tensor_;
  What what_;
  std::vector<std::byte> before_;
};

/// Names of the ambient state that is not as a run finds it: "grad mode, hooks"; empty when all is.
std::string left_behind();

}  // namespace rematch
