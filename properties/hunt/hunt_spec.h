#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "properties/generate/mix.h"
#include "properties/generate/shrink.h"
#include "properties/hunt/profile.h"
#include "properties/hunt/tally.h"
#include "properties/laws/law.h"

namespace rematch {

/// Data that decides, for one subject, the cases of a hunt, their verdicts and findings.
struct HuntSpec {
  Mix mix = Mix::wide;
  std::uint64_t seed = 1;
  /// The hunt ends at this limit or at that of its Schedule, whichever comes first; with neither,
  /// only a violation or a request to stop ends it.
  std::optional<std::uint64_t> cases;
  /// With as many structures the hunt ends, too.
  std::optional<std::uint64_t> structures;
  /// The laws to judge by. A hunt fails if none of them had anything to judge.
  LawSet laws = all_laws();
  /// Always judged, because a failed run says nothing about other laws.
  LawSet failures = failure_laws();
  LawSet judged() const { return laws | failures; }
  /// Known divergences of the subject. Violations that they explain are counted, and do not end the
  /// hunt.
  Profile profile;
  /// Continue after a violation, and report all violations.
  bool keep_going = false;
  /// Whether a hunt of which these cases are the first ends with them.
  bool is_over(const Tally& tally) const {
    return (!keep_going && !tally.violating.empty()) ||
           (structures && tally.structures.count() >= *structures);
  }
  /// With keep_going: how many violating cases of each law are shrunk.
  std::size_t shrunk_per_law = 100;
  ShrinkBudget shrink;
  /// Floors are checked in hunts of at least this many cases; smaller hunts say little about
  /// frequencies.
  std::uint64_t floors_from = 2000;
};

}  // namespace rematch
