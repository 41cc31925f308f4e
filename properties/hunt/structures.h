#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "properties/case/case.h"
#include "properties/laws/law.h"

namespace rematch {

/// A hash of the structure of a case: the model, the plan, policies and modes. Cases that differ in
/// their seed, their data, their training steps (Field::varies), or in the options `promise` and
/// `repeat` have the same structure. Two structures have the same hash by chance alone, with a
/// probability of 2^-64.
std::uint64_t structure_of(const Case& c);

/// A law that judged fewer structures than this has not been tried enough for `kept` to say much.
inline constexpr std::uint64_t kFewStructures = 100;

/// The number of distinct structures, and of those that each law judged. Exact up to kMost
/// structures. Beyond that it is an estimate from the kMost smallest hashes, which are a random
/// sample, with a standard error of 1 / sqrt(kMost), about 1.6 % (Bar-Yossef et al., RANDOM 2002).
/// Memory is bounded. Sums do not depend on the order in which cases are added.
class Structures {
 public:
  static constexpr std::size_t kMost = 4096;

  /// `laws`: those that judged the case.
  void add(std::uint64_t structure, LawSet laws);
  void add(const Structures& other);

  bool is_exact() const { return laws_.size() < kMost; }
  std::uint64_t count() const;
  std::uint64_t judged_by(std::size_t law) const;
  /// The structures that are kept, and the laws that judged each.
  const std::map<std::uint64_t, LawSet>& kept() const { return laws_; }

 private:
  std::map<std::uint64_t, LawSet> laws_;
};

}  // namespace rematch
