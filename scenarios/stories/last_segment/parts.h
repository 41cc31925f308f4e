#pragma once

#include "scenarios/report/scenario.h"
#include "scenarios/support/step.h"

namespace rematch::scenarios::sequential {

/// Layers tanh(W x + b) of one width, so that each leaves one activation of rows * width floats.
struct Net {
  int layers = 12;
  std::int64_t rows = 512;
  std::int64_t width = 64;
  /// After each layer; 0: none.
  double dropout = 0;
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
  /// Hand checkpoint_sequential() one segment less, without the layers of the last one, and run
  /// those afterwards.
  bool excluded = false;
  /// So many functions that do nothing are appended to the net's.
  int appended = 0;
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

/// Statements that held for every 1 <= k <= n < 40, in both variants, the loss right behind.
struct EveryCut {
  int cuts = 0;
  /// Layer runs and their order are those of the formula, last segment stored or not.
  bool runs = true;
  /// Bytes alive after the forward are those of the formula.
  bool bytes = true;
  /// Without dropout. Non-reentrant: stored and checkpointed peak alike. Reentrant: checkpointed
  /// never lower.
  bool peaks = true;
  /// Loss and gradients equal the plain run's to the bit, last segment stored or not.
  bool bits = true;
  /// A stored last segment is the same, event by event, as leaving its layers out of the call.
  bool excluded = true;
  /// Where k divides n: so many empty functions appended as a segment has layers, and one segment
  /// more, are the same layer runs and bytes as a checkpointed last segment.
  bool appended = true;
};

EveryCut try_every_cut(const Options& options);

/// Tells the runs and bytes of a few cuts, and claims what concerns them.
void tell_cuts(const EveryCut& every, Report& report);

}  // namespace rematch::scenarios::sequential
