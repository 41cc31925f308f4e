#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "properties/hunt/finding.h"
#include "properties/hunt/hunt_spec.h"
#include "properties/hunt/schedule.h"
#include "properties/hunt/tally.h"
#include "properties/record/subject.h"

namespace rematch {

struct HuntProgress {
  std::uint64_t cases = 0;
  double seconds = 0;
  /// Cases that violated a law, so far.
  std::uint64_t violations = 0;
  /// After the hunt: how many violating cases have been shrunk, and how many will be.
  std::size_t shrunk = 0;
  std::size_t to_shrink = 0;
};

struct HuntOptions : HuntSpec, Schedule {
  /// Called once in each thread of the hunt, and once in each thread that shrinks.
  std::function<std::unique_ptr<Subject>()> make_subject;
  /// Returns case number i; empty: generate_case(mix, seed, i, scope). Called from
  /// all threads concurrently.
  std::function<Case(std::uint64_t)> generate;
  /// Called about ten times a second, from the thread that called hunt().
  std::function<void(const HuntProgress&)> progress;
  /// Called for the first violation of each law, as soon as it is seen, from one thread at a time.
  std::function<void(const ViolatingCase&)> found;
};

/// Case number `index` of the hunt.
inline Case case_of(const HuntOptions& options, const Scope& scope, std::uint64_t index) {
  return options.generate ? options.generate(index)
                          : generate_case(options.mix, options.seed, index, scope);
}

}  // namespace rematch
