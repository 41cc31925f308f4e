#pragma once

#include <cstdint>
#include <vector>

#include "properties/case/case.h"
#include "properties/case/geometry.h"

namespace rematch {

/// Bytes of one layer in a run, whatever the plan is. Layer i reads value i and makes value i + 1.
struct ChainLayer {
  /// Its output lies in the memory of its operand.
  bool alias = false;
  bool saves_operand = false;
  bool saves_output = false;
  /// It saves anything, parameters included, so a recomputation has to run it.
  bool saves = false;
  /// A segment may begin here.
  bool may_begin = true;
  /// Live while it runs: its output, its own tensors and its workspace.
  std::int64_t running = 0;
  /// Saved bytes of its own: masks, statistics.
  std::int64_t own = 0;
  bool has_node = false;
  /// Live bytes when its backward begins, without saved tensors.
  std::int64_t before = 0;
  /// Bytes that its backward adds. In a recomputed graph, a product lets go of its operand before
  /// it makes the gradient of the bias.
  std::int64_t backward = 0;
  std::int64_t backward_freeing = 0;
  /// Live bytes when its gradients are accumulated, without saved tensors.
  std::int64_t after = 0;
};

/// A model in which each layer reads the one before, in numbers for optimum.h. All live bytes are
/// the sum of one of these bases and of the saved tensors that the plan holds at that moment.
struct Chain {
  std::vector<ChainLayer> layers;
  /// Bytes of value i; 0 where it lies in the memory of the model input, which is always live.
  std::vector<std::int64_t> value;
  std::int64_t forward = 0;
  /// From the last layer to the first backward, while the output is live, and after it was dropped.
  std::int64_t with_output = 0;
  std::int64_t without_output = 0;
  /// The peak of what no plan changes: the optimizer's step.
  std::int64_t rest = 0;
};

/// Throws std::invalid_argument for a case that is no chain, or of which a forward and its backward
/// are not all that is live: it says what was expected, what came, and what to do.
Chain chain_of(const Case& c, const Geometry& geometry);

}  // namespace rematch
