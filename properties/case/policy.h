#pragma once

#include <string_view>

#include "properties/case/case.h"

namespace rematch {

/// The op that makes the layer's outputs and that a policy may keep; empty for layers that compute
/// nothing or compute in place: flatten, duplicate, relu in place, and dropout or gaussian_noise
/// without effect. An rrelu in evaluation is a leaky_relu.
std::string_view op_of(const Case& c, int layer);

/// Does the policy of segment `s` keep the results of layer `layer`, which lies in it.
bool kept_by_policy(const Case& c, const SegmentSpec& s, int layer);
/// Does the policy of any segment of the plan.
bool kept_by_policy(const Case& c, int layer);

}  // namespace rematch
