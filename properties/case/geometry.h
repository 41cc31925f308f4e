#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/tensor/shape.h"
#include "properties/case/case.h"

namespace rematch {

/// Limits that keep a hostile case file from asking for the moon.
inline constexpr int kMaxLayers = 4096;
inline constexpr int kMaxNesting = 64;
inline constexpr int kMaxStreams = 256;
inline constexpr std::size_t kMaxKeep = 64;
inline constexpr std::int64_t kMaxCaseElements = std::int64_t{1} << 31;

/// One parameter or buffer tensor of the model.
struct ParameterInfo {
  int layer = 0;
  std::string_view role;  ///< "weight", "bias", "running_mean", "running_var".
  Shape shape;
  bool frozen = false;
  int uses = 1;  ///< Layers that use it: 1, or more when tied.
};

/// What shapes alone say of a case.
struct Geometry {
  /// In layer order, weight before bias; a tied layer adds none. The index of a parameter in
  /// records and laws is its position here; buffers (batch_norm's running statistics) likewise.
  std::vector<ParameterInfo> parameters;
  std::vector<ParameterInfo> buffers;
  /// Positions in `parameters` of the parameters that layer i uses (its own, or its tie's).
  std::vector<std::vector<int>> layer_parameters;
  /// shapes[i][k]: output k of layer i (split and duplicate have two outputs, all others one).
  std::vector<std::vector<Shape>> outputs;
  /// live[b], for b in 0..layers: the values passed across the boundary before layer b, in a
  /// fixed order: the main value (output 0 of layer b-1) first, then the other values that are
  /// defined before b and used at or after b, by (layer, output). An output 1 that no layer uses
  /// stays live to the end of the model: it is a model output that the loss ignores. live[layers]
  /// is the list of model outputs; the loss reads its first entry.
  std::vector<std::vector<ValueRef>> live;

  const Shape& shape_of(ValueRef value, const Shape& input) const {
    return value.layer < 0 ? input
                           : outputs[static_cast<std::size_t>(value.layer)]
                                    [static_cast<std::size_t>(value.output)];
  }
};

/// Checks the whole case (shapes, references, plan, protocol, limits) and returns its geometry.
/// Throws std::invalid_argument naming the layer or field: "[case] layer 3 (conv2d): kernel 5
/// does not fit the padded input 4 x 4".
Geometry validate(const Case& c);

/// Random streams of a run of the case: the default one and those up to the last that a layer
/// draws from. All begin at the case's seed, word 0.
int streams_of(const Case& c);

/// Explicit segments of the case's plan: the sequential form is expanded by the published
/// partition rule (floor(n/k) layers a segment, the remainder in the last one, which is left out
/// when stored). For forecasts and pictures; the engine cuts for itself.
std::vector<SegmentSpec> segments_of(const Case& c);

}  // namespace rematch
