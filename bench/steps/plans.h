#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoint/sequential.h"

namespace rematch::bench {

/// Plan of a step: what it checkpoints.
struct Plan {
  enum class Cut : std::uint8_t { plain, two, four, root, every, nested };
  std::string_view name;
  Cut cut = Cut::plain;
  bool reentrant = false;
  LastSegment last = LastSegment::stored;
  /// A policy keeps the results of products.
  bool keeps_products = false;
  /// Saved tensors go to the host: all of them, or with segments their inputs.
  bool offload = false;
};

/// plain; k2, k4: two and four segments; sqrt: the square root of the number of layers; every: each
/// layer; nested: two halves, each cut again; offload: plain, all that is saved goes to the host;
/// sqrt-offload: the inputs of segments do, and each is checkpointed. Apart from that the last
/// segment is stored and the variant non-reentrant, unless the name says otherwise.
std::span<const Plan> plans();

/// Runs `functions` on `input` under the plan. If the plan offloads, the caller opens the
/// OffloadScope.
Tensor run(const Plan& plan, std::span<const Function> functions, const Tensor& input);

}  // namespace rematch::bench
