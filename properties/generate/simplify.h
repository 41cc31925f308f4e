#pragma once

#include <functional>

#include "properties/case/case.h"

namespace rematch {

/// Takes a candidate; true ends the visit.
using OfferCase = std::function<bool(Case&&)>;

/// Candidates that simplify one aspect of `c`, the boldest first, neither repaired nor checked.
/// True as soon as an offer returns true.
bool simplify_plan(const Case& c, const OfferCase& offer);
bool simplify_protocol(const Case& c, const OfferCase& offer);
bool simplify_layers(const Case& c, const OfferCase& offer);
bool simplify_sizes(const Case& c, const OfferCase& offer);

}  // namespace rematch
