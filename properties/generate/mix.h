#pragma once

#include <cstdint>
#include <string_view>

#include "properties/case/case.h"
#include "properties/case/features.h"
#include "properties/layers/scope.h"

namespace rematch {

/// A distribution of cases.
enum class Mix : std::uint8_t {
  /// The cases that one would write first with a property-testing library: half perceptrons of 1 to
  /// 10 layers, half small convolutional networks, checkpointed by checkpoint_sequential().
  standard,
  /// Everything a case can say: 2 to 24 layers with skips, ties, several outputs and frozen parts,
  /// nested and mixed plans, and every protocol.
  wide,
};

std::string_view to_string(Mix mix);

/// The fraction of the mix's cases with features of `scope`, at least, that have the feature; 0
/// where there is none.
double floor(Mix mix, Feature feature, const Scope& scope = everything());

/// Case number `index` of the hunt with seed `seed`: a pure function, the same on every machine.
/// All but the first of each `scope.cases_per_shape` cases differ from that one at most in what
/// vary() takes over, and with `scope.new_plans` in their plan, in what layers do in place and in
/// the injected failure; in the standard mix, and with more than a few of something, in their seed
/// alone. Each may have other options. The case is valid, has features of `scope` only, and without
/// checkpointing its loss requires grad. Throws std::invalid_argument that names the missing
/// features when `scope` allows no case of the mix.
Case generate_case(Mix mix, std::uint64_t seed, std::uint64_t index,
                   const Scope& scope = everything());

/// Gives `c` the fields of `from` in which cases of one shape may differ (Field::varies): the seed,
/// the kind of data and the training steps.
void vary(Case& c, const Case& from);

}  // namespace rematch
