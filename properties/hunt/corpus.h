#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "properties/case/case.h"
#include "properties/case/features.h"

namespace rematch {

// The corpus of a hunt is some of its cases that are worth running first: together they have every
// pair of features that its first 100,000 cases have.
//
// 1. Coverage is pairs of features (two that one case has, or one alone), for faults of
//    checkpointing need two things to meet: a dropout in a segment, a tied weight and a prior
//    gradient. They are a function of the case: what reaches them is known without running it, so a
//    corpus is computed, in two seconds, rather than stored.
// 2. Pairs are bounded, and few: of 115 features the wide mix has 6,004 pairs. Some 86
//    to 94 of 100,000 cases reach all of them but one at most (seeds 7, 11, 12, 13 and 14), and
//    those show every fault of properties/faults. (Triples of 113 features: 200,856 in 10,000
//    cases, of which 1,261 are needed to reach them, which is too many for a slow subject.)
// 3. The cases are those that the subject implements, so it can run all pairs that it can have.

/// Pairs of features.
class PairSet {
 public:
  /// How many of the pairs of these features are missing, in either order.
  std::size_t missing(const FeatureSet& features) const;
  void add(const FeatureSet& features);
  /// Pairs of two features, and features.
  std::size_t size() const;

 private:
  std::array<FeatureSet, kFeatureCount> rows_{};
};

struct CorpusCase {
  /// Its number in the hunt.
  std::uint64_t index = 0;
  Case c;
  FeatureSet features;
};
using Corpus = std::vector<CorpusCase>;

inline constexpr std::uint64_t kCasesForCorpus = 100'000;

/// Some of the cases 0 .. count - 1 that have all their pairs of features, in order of how many
/// they add; the same for any number of jobs, which call `generate` concurrently.
Corpus corpus_of(std::uint64_t count, const std::function<Case(std::uint64_t)>& generate, int jobs);

PairSet pairs_of(const Corpus& corpus);

}  // namespace rematch
