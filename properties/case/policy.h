#pragma once

#include <cstddef>

#include "properties/case/case.h"

namespace rematch {

/// Does the policy of segment `s` keep the results of op number `op` of layer `layer`, which lies
/// in it.
bool kept_by_policy(const Case& c, const SegmentSpec& s, int layer, std::size_t op);
/// Does the policy of segment `s` keep the results of all ops of layer `layer`.
bool kept_by_policy(const Case& c, const SegmentSpec& s, int layer);
/// Does the policy of any segment of the plan.
bool kept_by_policy(const Case& c, int layer);

}  // namespace rematch
