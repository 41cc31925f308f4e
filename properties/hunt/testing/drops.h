#pragma once

#include <algorithm>

#include "properties/case/case.h"

namespace rematch::testing {

/// Whether a layer of the case is a dropout.
inline bool drops(const Case& c) {
  return std::any_of(c.layers.begin(), c.layers.end(),
                     [](const LayerSpec& l) { return l.kind == layer_kind("dropout"); });
}

}  // namespace rematch::testing
