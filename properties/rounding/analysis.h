#pragma once

#include <optional>
#include <vector>

#include "properties/bounds/bounds.h"
#include "properties/case/case.h"
#include "properties/case/geometry.h"
#include "properties/record/record.h"

namespace rematch::rounding {

/// The numbers of one observation of a plain run.
struct BoundedArray {
  Quantity quantity{};
  int step = 0;
  int microbatch = 0;
  int index = 0;
  std::vector<Bounded> numbers;
};

/// The numbers of a plain run of the case, with bounds on what rounding may do to each in a
/// correct implementation that works in the case's dtype, or in bfloat16 wherever it likes if the
/// case has autocast. nullopt where that does not follow from the case: a layer draws, a trial
/// leaves states changed, or there is too much to be analysed. `detached`: layers whose
/// parameters take part as constants.
std::optional<std::vector<BoundedArray>> analyse(const Case& c, const Geometry& geometry,
                                                 const std::vector<int>& detached);

}  // namespace rematch::rounding
