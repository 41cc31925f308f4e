#pragma once

#include "scenarios/report/scenario.h"

namespace rematch::scenarios::sequential {

/// What held for every 1 <= k <= n < 40, in both variants, the loss right behind.
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
