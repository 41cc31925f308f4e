#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/tensor/shape.h"
#include "properties/layers/spec.h"

namespace rematch {

struct Layer;

/// Limits that keep a hostile case file from asking for the moon.
inline constexpr int kMaxLayers = 4096;
inline constexpr int kMaxStreams = 256;
inline constexpr std::size_t kMaxOperands = 16;
inline constexpr std::int64_t kMaxCaseElements = std::int64_t{1} << 31;

/// The dimension of features: channels of images, the last one of rows and sequences.
inline int features_dimension(const Shape& x) { return x.rank() == 3 ? 2 : 1; }

/// One parameter or buffer tensor of the model.
struct ParameterInfo {
  int layer = 0;
  std::string_view role;  ///< "weight", "bias", "running_mean", "running_var".
  Shape shape;
  bool frozen = false;
  int uses = 1;  ///< Layers that use it: 1, or more when tied.
  /// A parameter starts with values between these, a buffer with `low`.
  double low = 0;
  double high = 0;
};

/// Facts about a model that follow from shapes alone.
struct Geometry {
  /// The first model input and the further ones.
  int inputs = 1;
  /// In layer order, and within a layer in the order of its kind (weight before bias); a tied layer
  /// adds none. The index of a parameter in records and laws is its position here; buffers
  /// (batch_norm's running statistics) likewise.
  std::vector<ParameterInfo> parameters;
  std::vector<ParameterInfo> buffers;
  /// Positions in `parameters` of the parameters that layer i uses (its own, or its tie's).
  std::vector<std::vector<int>> layer_parameters;
  /// shapes[i][k]: output k of layer i.
  std::vector<std::vector<Shape>> outputs;
  /// live[b], for b in 0..layers: the values passed across the boundary before layer b, in a
  /// fixed order: the main value (output 0 of layer b-1) first, then the other values that are
  /// defined before b and used at or after b, by (layer, output); model inputs are the outputs of
  /// layer -1. A further output that no layer uses stays live to the end of the model: it is a
  /// model output that the loss ignores. live[layers] is the list of model outputs; the loss reads
  /// its first entry.
  std::vector<std::vector<ValueRef>> live;

  /// The shape of a layer's weight, if it has one.
  const Shape& weight_of(int layer) const {
    const int first = layer_parameters[static_cast<std::size_t>(layer)].front();
    return parameters[static_cast<std::size_t>(first)].shape;
  }
  const Shape& shape_of(ValueRef value, const Shape& input) const {
    return value.layer < 0 ? input
                           : outputs[static_cast<std::size_t>(value.layer)]
                                    [static_cast<std::size_t>(value.output)];
  }
};

/// Goes through a model layer after layer, as Layer::shape() wants it: the layer at hand says what
/// it expects, and states its parameters, buffers and outputs. Every complaint is a
/// std::invalid_argument that names the layer: "[case] layer 3 (conv2d): kernel 5 does not fit the
/// padded input 4 x 4".
class ShapeWalk {
 public:
  /// Checks the input's extents. All must outlive the walk; layers may be appended meanwhile.
  ShapeWalk(const std::vector<std::int64_t>& input, int further_inputs,
            const std::vector<LayerSpec>& layers, bool train, Geometry& g);
  /// Works out the next layer.
  void step();

  const LayerSpec& spec() const { return layers_[static_cast<std::size_t>(index_)]; }
  /// Whether the current layer trains.
  bool train() const { return trains_in(spec(), train_); }
  /// Operand 0.
  const Shape& x() const { return x_; }
  /// Features of operand 0.
  std::int64_t width() const { return x_[features_dimension(x_)]; }
  /// Operand i; complains where it is no earlier value.
  const Shape& operand(int i) const;
  const Shape& shape_of(ValueRef v) const { return g_.shape_of(v, input_); }
  /// Whether v is a model input or an output of a layer before the one at hand.
  bool known(ValueRef v) const;

  /// The layer is the first of the model, and turns its input of rank 2 from tokens into numbers.
  void need_tokens() const;
  /// Whether the model input is tokens, which no layer but the first can read.
  bool takes_tokens() const { return vocabulary_of(layers_) > 0; }
  void need_rank(int rank) const;
  void need_features() const;
  /// `product` elements of something must be within the limit.
  std::int64_t product_of(std::span<const std::int64_t> dims) const;
  /// Adds a tensor of the layer to the case's total.
  void count(std::span<const std::int64_t> dims);
  /// The output extents of a window that slides over the input.
  std::pair<std::int64_t, std::int64_t> window() const;

  /// A parameter with values in [low, high), which takes part in training unless frozen.
  void parameter(std::string_view role, const Shape& shape, double low, double high);
  /// A weight, and a bias for each of its rows if the layer has one, both around zero, by fan-in;
  /// or those of the layer that it is tied to.
  void weight_and_bias(const Shape& weight);
  /// A scale around one and a shift around zero, nowhere trivial.
  void scale(std::int64_t extent) { parameter("weight", Shape{extent}, 0.5, 1.5); }
  void shift(std::int64_t extent) { parameter("bias", Shape{extent}, -0.5, 0.5); }
  void buffer(std::string_view role, const Shape& shape, double initial);

  void output(std::span<const std::int64_t> dims);
  void same_output() { output(x_.dims()); }
  /// x with another number of features.
  void output_of_width(std::int64_t width);

  [[noreturn]] void fail(const std::string& expected, const std::string& got) const;
  [[noreturn]] void complain(const std::string& what) const;

 private:
  std::string place() const;
  void check_input();
  void check_operands(const Layer& layer) const;
  [[noreturn]] void too_large() const;
  void share(int owner, const Shape& weight);

  const std::vector<std::int64_t>& dims_;
  const std::vector<LayerSpec>& layers_;
  bool train_;
  Geometry& g_;
  Shape input_;
  Shape x_;
  std::int64_t total_ = 0;
  int index_ = -1;
};

/// Fills g.live, from the layers, g.inputs and g.outputs.
void find_live_values(const std::vector<LayerSpec>& layers, Geometry& g);

}  // namespace rematch
