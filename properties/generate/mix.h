#pragma once

#include <cstdint>
#include <string_view>

#include "properties/case/case.h"

namespace rematch {

/// A distribution of cases.
enum class Mix : std::uint8_t {
  /// What one would write first with a property-testing library: half perceptrons of 1 to 10
  /// layers, half small convolutional networks, checkpointed by checkpoint_sequential().
  standard,
  /// Everything a case can say: 2 to 24 layers with skips, ties, several outputs and frozen parts,
  /// nested and mixed plans, and every protocol.
  wide,
};

std::string_view to_string(Mix mix);

/// Case number `index` of the hunt with seed `seed`: a pure function, the same on every machine.
/// The case is valid, and without checkpointing its loss requires grad.
Case generate_case(Mix mix, std::uint64_t seed, std::uint64_t index);

}  // namespace rematch
