#pragma once

#include <cstdint>
#include <vector>

#include "properties/case/case.h"
#include "properties/plans/chain.h"

namespace rematch {

/// One of the best plans for a chain: none recomputes less within its bytes.
struct BestPlan {
  std::vector<SegmentSpec> segments;
  /// As the forecast says, peak and recomputations.
  PromiseSpec promise;
  /// The cost of all that is run again.
  std::int64_t cost = 0;
};

struct Frontier {
  /// From the plain run to the fewest bytes: costs grow, peaks fall.
  std::vector<BestPlan> plans;
  /// The forecast confirms the bytes and recomputations of every plan that the search counted. If
  /// not, the promises hold, but a better plan may exist.
  bool exact = true;
};

/// All plans of non-reentrant segments, flat and nested to any depth, that no other one beats in
/// both peak and cost, found by dynamic programming over intervals of layers: a segment
/// costs the layers that its recomputation runs and the plans of the segments in it, and what it
/// holds adds up. Throws as chain_of() does.
///
/// `costs`: what each further run of a layer costs, its time, say, by layer; none: 1 each, so that
/// recomputations are counted. Throws std::invalid_argument if it has another size than the case
/// has layers, or one is not positive.
Frontier frontier_of(const Case& c, std::vector<std::int64_t> costs = {});

}  // namespace rematch
