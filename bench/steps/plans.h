#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoint/sequential.h"

namespace rematch::bench {

/// How a step is checkpointed.
struct Plan {
  enum class Cut : std::uint8_t { plain, two, four, root, every, nested };
  std::string_view name;
  Cut cut = Cut::plain;
  bool reentrant = false;
  LastSegment last = LastSegment::stored;
  /// A policy keeps the results of products.
  bool keeps_products = false;
};

/// plain; k2, k4: two and four segments; sqrt: the square root of the number of layers; every: each
/// layer; nested: two halves, each cut again; all with the last segment stored, non-reentrant
/// unless the name says otherwise.
std::span<const Plan> plans();

/// Runs `functions` on `input` under the plan.
Tensor run(const Plan& plan, std::span<const Function> functions, const Tensor& input);

}  // namespace rematch::bench
