#pragma once

#include <vector>

#include "properties/case/case.h"
#include "properties/layers/geometry.h"

namespace rematch {

/// Further limits that keep a hostile case file from asking for the moon.
inline constexpr int kMaxNesting = 64;
inline constexpr std::size_t kMaxKeep = 64;

/// Checks the whole case (shapes, references, plan, protocol, limits) and returns its geometry.
/// Throws std::invalid_argument naming the layer or field: "[case] layer 3 (conv2d): kernel 5
/// does not fit the padded input 4 x 4".
Geometry validate(const Case& c);

/// The outputs that have a loss which requires grad, if those in `output_flags` do.
std::vector<int> roots_of(const Case& c, const std::vector<bool>& output_flags);

/// How many backwards each forward has from each of its roots, where each part of a partial one
/// counts.
int backward_calls(const Case& c, const Geometry& geometry);

/// Random streams of a run of the case: the default one and those up to the last that a layer
/// draws from. All begin at the case's seed, word 0.
int streams_of(const Case& c);

/// Explicit segments of the case's plan: the sequential form is expanded by the published
/// partition rule (floor(n/k) layers a segment, the remainder in the last one, which is left out
/// when stored). For forecasts and pictures; the engine cuts for itself.
std::vector<SegmentSpec> segments_of(const Case& c);

}  // namespace rematch
