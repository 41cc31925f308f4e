#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "properties/case/case.h"
#include "properties/laws/law.h"

namespace rematch {

/// A case of a hunt, and the first law that it violates.
struct ViolatingCase {
  std::uint64_t index = 0;
  Case c;
  Violation violation;
  /// The entry of the profile that explains the violation.
  std::optional<std::size_t> known = std::nullopt;
  /// Cases that differ from it in what vary() takes over alone, and violate the same law first.
  /// Only the first of them is kept, since they would shrink alike.
  std::uint64_t count = 1;
};

/// Cases that violate the same law, and shrink to the same model.
struct Finding {
  /// The violation of `smallest`.
  Violation violation;
  /// The first of these cases: its number, and the case as it was found.
  std::uint64_t index = 0;
  Case original;
  /// The smallest case found for which the same law is the first to be violated; in place of a law
  /// about events an earlier one may be, for bytes tell of wrong gradients even where numbers hide
  /// them.
  Case smallest;
  /// Number of cases that shrink to this one; for a known divergence, of all cases that show it.
  std::uint64_t count = 1;
  /// The entry of the profile that explains the violation.
  std::optional<std::size_t> known = std::nullopt;
};

}  // namespace rematch
