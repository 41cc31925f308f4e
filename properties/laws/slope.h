#pragma once

#include <optional>

#include "properties/laws/law.h"

namespace rematch {

/// How far displaced runs go: small enough that few kinks lie in between, large enough that the
/// rounding of a loss near 1 (2^-53) leaves 36 of the 53 bits of a difference quotient.
inline constexpr double kDisplacement = 0x1p-17;

/// The summed loss of the first step, once per backward pass, as a function of the distance along
/// the case's direction: at 0 and at the displacement, whole and half, on both sides.
struct SlopeSamples {
  double middle = 0;
  double forward = 0;
  double backward = 0;
  double half_forward = 0;
  double half_backward = 0;
  /// The sum of the losses' absolute values at 0.
  double magnitude = 0;
};

/// Whether a slope can be measured: in float64, where no part of the model is a constant to the
/// reference run, and not on integers, which sit on the kinks.
bool has_slope(const Case& c, const Forecast& forecast);

/// Four displaced runs. `plain` is the record of the undisplaced one. nullopt when a run fails.
std::optional<SlopeSamples> measure_slope(const Case& c, const Geometry& geometry, Subject& subject,
                                          const Record& plain, Record& scratch);

}  // namespace rematch
