#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "properties/case/case.h"
#include "properties/case/features.h"
#include "properties/layers/scope.h"

namespace rematch {

// A corpus is a folder of cases that are worth running first, by any subject of any release:
//
//   reach-HASH.json       reaches a pair of features that the corpus had not
//   broke-LAW-HASH.json   shrunk; broke a subject once, which violated this law
//   any other *.json      somebody put it there; it is run, and never removed
//
// 1. Coverage is pairs of features (two that one case has, or one alone), for faults of
//    checkpointing need two things to meet: a dropout in a segment, a tied weight and a prior
//    gradient. They are a function of the case: what reaches them is known without running it. They
//    are bounded, and few: of 115 features the wide mix has 6,004 pairs. Of 100,000 cases, 86 to 94
//    reach all of them but one at most (seeds 7, 11, 12, 13 and 14), and those show every fault of
//    properties/faults. (Triples of 113 features: 200,856 in 10,000 cases, of which 1,261 are
//    needed to reach them, which is too many for a slow subject.)
// 2. A subject runs a greedy cover of what it implements, so the price of a run does not grow with
//    the folder.
// 3. A case is only removed if smaller ones of the corpus, with no feature that it lacks, reach all
//    of its pairs: any subject that implements it implements those. So no subject loses a pair by a
//    merge, merges may come in any order, and hunts may write to a folder at the same time: the
//    smallest case of a pair is removed by none of them.
// 4. Of two cases that violated the same law and have equal features, the smaller one stays.

/// Pairs of features.
class PairSet {
 public:
  /// How many of the pairs of these features are missing, in either order.
  std::size_t missing(const FeatureSet& features) const;
  /// Of these features, those whose pair with `feature` is missing.
  FeatureSet missing_with(Feature feature, const FeatureSet& features) const;
  void add(const FeatureSet& features);
  bool contains_all(const PairSet& other) const;
  /// Pairs of two features, and features.
  std::size_t size() const;

 private:
  std::array<FeatureSet, kFeatureCount> rows_{};
};

struct CorpusCase {
  /// Decides what it is kept for, and stands for one content where the corpus gave it.
  std::string name;
  Case c;
  FeatureSet features;
};

/// `c` must be valid.
CorpusCase reaching_case(const Case& c);
CorpusCase broken_case(const Case& c, std::string_view law);

using Corpus = std::vector<CorpusCase>;

/// The cases of a folder, by name. Of each file that cannot be read, a text with its name and what
/// is wrong is added to `unreadable`. Throws std::invalid_argument if there is no such folder.
Corpus load_corpus(const std::filesystem::path& folder, std::vector<std::string>& unreadable);

/// Writes those that are not there yet; each file appears complete or not at all. Returns how many.
/// Throws std::runtime_error with the file's name.
std::size_t save_corpus(const Corpus& corpus, const std::filesystem::path& folder);

/// What it is kept for. One that is neither was put there by somebody.
bool is_reaching(const CorpusCase& c);
bool is_broken(const CorpusCase& c);

PairSet pairs_of(const Corpus& corpus);

/// Those that are to stay, in order of size. Without those of any other name.
Corpus minimised(const Corpus& corpus);

/// Those that a subject implements.
Corpus within(const Corpus& corpus, const Scope& scope);
/// In the order in which they are run: all that are not there to reach pairs, and of those that
/// are, some that reach as many pairs together as all.
Corpus to_run(const Corpus& corpus);

/// Of the cases 0 .. count - 1, some that reach all pairs that `known` lacks, in order of how many
/// they add; the same for any number of jobs, which call `generate` concurrently.
Corpus reaching_more(const PairSet& known, std::uint64_t count,
                     const std::function<Case(std::uint64_t)>& generate, int jobs);

}  // namespace rematch
