#pragma once

#include "scenarios/report/scenario.h"
#include "scenarios/support/step.h"

namespace rematch::scenarios::last_segment_story {

/// Layers tanh(W x + b) of one width, so that each leaves one activation of rows * width floats.
struct Net {
  int layers = 12;
  std::int64_t rows = 512;
  std::int64_t width = 64;
  bool input_requires_grad = true;

  std::int64_t activation_bytes() const { return rows * width * 4; }
};

/// The computation between the sequential part and the loss: more of the same layers, then one
/// layer to `wide` features and back.
struct Head {
  int layers = 0;
  std::int64_t wide = 0;
};

struct How {
  /// 0: nothing is checkpointed.
  int segments = 0;
  LastSegment last = LastSegment::stored;
  bool reentrant = false;
  /// The caller holds the output of the sequential part until the backward is over.
  bool output_kept = false;
};

/// One forward, loss (mean square) and backward. Bytes are those beyond parameters, input and
/// target.
struct Step {
  /// Layers in the order in which they ran.
  std::vector<int> order;
  /// Whether the output of each layer is alive when the sequential part is over.
  std::vector<bool> alive;
  std::int64_t after_sequential = 0;
  /// Highest from the end of the sequential part to the moment at which the gradient arrives back
  /// at it: while the head and the loss compute.
  std::int64_t head_peak = 0;
  std::int64_t peak = 0;
  /// Bytes alive after each allocation and release.
  std::vector<std::int64_t> live;
  Values values;
  /// Layers of the net whose weight has a gradient.
  int trained = 0;

  int runs() const { return static_cast<int>(order.size()); }
};

/// Throws what the engine throws.
Step run(const Net& net, const Head& head, const How& how);

}  // namespace rematch::scenarios::last_segment_story
