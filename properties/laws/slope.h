#pragma once

#include <vector>

#include "properties/case/case.h"
#include "properties/forecast/forecast.h"
#include "properties/record/record.h"

namespace rematch {

/// The summed loss of the first step, once per backward pass, at four places along the case's
/// direction (properties/record/direction.h).
struct SlopeSample {
  double distance = 0;
  double forward = 0;        ///< At `distance`.
  double backward = 0;       ///< At -`distance`.
  double half_forward = 0;   ///< At `distance` / 2.
  double half_backward = 0;  ///< At -`distance` / 2.
};

/// Losses that the slope of a loss is measured by.
struct SlopeSamples {
  /// The slope along the direction by the recorded gradients of the first step.
  double by_gradients = 0;
  /// The summed loss at the case itself.
  double middle = 0;
  /// The largest numbers that enter the losses: see magnitude_of().
  double magnitude = 0;
  /// At one distance; at all of kDistances where the first disagrees with the gradients.
  std::vector<SlopeSample> around;
};

/// How far displaced runs go. The first is small enough that few kinks lie in between, and large
/// enough that the rounding of a loss near 1 (2^-53) leaves 36 of the 53 bits of a difference
/// quotient. The others see rounding errors less, or fewer kinks.
inline constexpr double kDistances[] = {0x1p-17, 0x1p-13, 0x1p-21};

/// Whether a slope can be measured: in float64, where no part of the model is a constant to the
/// reference run, no forward changes a state that a later forward of the step reads, and not on
/// integers, which sit on the kinks.
bool has_slope(const Case& c, const Forecast& forecast);

/// The losses of the first step, summed once per backward.
double first_step_loss(const Case& c, const Record& record);
/// The sum over the first step's losses of |loss| and of the largest |output|: a loss is a
/// difference of numbers as large as the outputs, and rounded like them.
double magnitude_of(const Case& c, const Record& record);
/// The product of gradients and direction, over all arrays of the first step.
double slope_by_gradients(const Case& c, const Record& plain);

/// The slope by the inner difference quotient, and how far from the true one it may be.
struct Quotient {
  double slope = 0;
  double bound = 0;
};
Quotient quotient_of(const SlopeSamples& samples, const SlopeSample& sample);
/// Whether the slope by the gradients lies within the bound, or there is no finite bound.
bool agrees(const SlopeSamples& samples, const SlopeSample& sample);

}  // namespace rematch
