#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/memory/ledger.h"
#include "properties/case/case.h"
#include "properties/case/geometry.h"
#include "properties/record/record.h"

namespace rematch {

/// Runs every layer of the case once by itself on each ledger's device, on random operands of the
/// layer's shapes, differentiates it along random gradients, and compares. A whole model would
/// amplify differences of its first layers beyond any useful bound; a layer does not. Bounds are
/// derived from the length of an element's sum and the magnitude of its terms, never measured.
std::vector<Agreement> compare_layers(const Case& c, const Geometry& geometry,
                                      const std::shared_ptr<Ledger>& host,
                                      const std::shared_ptr<Ledger>& device);

}  // namespace rematch
