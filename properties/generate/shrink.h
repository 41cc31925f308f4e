#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "properties/case/case.h"
#include "properties/case/features.h"
#include "properties/layers/scope.h"

namespace rematch {

/// How much there is to understand in a case, compared from left to right: layers, the form of the
/// plan, segments, layers covered by them, options, protocol, details of layers, sizes.
/// Lexicographic order on a fixed number of non-negative integers is well-founded, so a descent in
/// it ends.
struct Complexity {
  std::array<std::uint64_t, 8> parts{};
  friend bool operator<(const Complexity& a, const Complexity& b) { return a.parts < b.parts; }
};

Complexity complexity(const Case& c);

/// Valid cases that are simpler than `c` (strictly, by complexity()), the most aggressive cuts
/// first, the seed kept, with features of `within` only. If the loss of `c` requires grad without
/// checkpointing, so does theirs.
std::vector<Case> shrink_candidates(const Case& c, const Scope& scope = everything());

struct ShrinkBudget {
  int steps = 5000;  ///< Cases that may be tried.
  double seconds = 10;
};

/// Greedy descent: as long as a candidate still fails, goes on from it. Ends with a case of which
/// no candidate fails, or when the budget is spent. `failing` is taken to fail.
Case shrink(Case failing, const std::function<bool(const Case&)>& still_fails,
            ShrinkBudget budget = {}, const Scope& scope = everything());

}  // namespace rematch
