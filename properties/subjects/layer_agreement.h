#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/memory/ledger.h"
#include "properties/case/case.h"
#include "properties/case/geometry.h"

namespace rematch {

/// One array that a layer computes by itself, forward or backward, on the host and on a device: the
/// element that uses most of its bound.
struct LayerAgreement {
  int layer = 0;
  /// "output 0", "gradient of operand 1", "gradient of weight".
  std::string what;
  std::int64_t element = 0;
  double host = 0;
  double device = 0;
  /// How far apart the two may be; 0: they must have the same bits. Derived from the length of the
  /// element's sum and the magnitude of its terms (layer_agreement.cpp), never from a measurement.
  double bound = 0;
  bool holds = true;
};

/// Runs every layer of the case once by itself on each ledger's device, on random operands of the
/// layer's shapes, differentiates it along random gradients, and compares. A whole model would
/// amplify differences of its first layers beyond any useful bound; a layer does not.
std::vector<LayerAgreement> compare_layers(const Case& c, const Geometry& geometry,
                                           const std::shared_ptr<Ledger>& host,
                                           const std::shared_ptr<Ledger>& device);

}  // namespace rematch
