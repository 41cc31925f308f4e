#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "properties/layers/draw_source.h"
#include "properties/layers/geometry.h"

namespace rematch {

/// A model that is drawn at random, layer after layer, so that each fits the value that it meets.
class ModelDraw {
 public:
  /// The widest value that layers should make.
  static constexpr std::int64_t kWidest = 24;

  /// Appends to `layers`, which must be empty; all must outlive this.
  ModelDraw(DrawSource& draw, const std::vector<std::int64_t>& input,
            std::vector<LayerSpec>& layers, bool train, int further_inputs = 0);

  DrawSource& draw;
  bool train;
  /// Widths that are drawn again and again, so that skips and ties find partners.
  std::array<std::int64_t, 2> palette{};
  bool several_streams = false;

  /// The value that the next layer meets.
  const Shape& x() const { return geometry_.shape_of({layer_count() - 1, 0}, input_); }
  bool on_images() const { return x().rank() == 4; }
  /// Its features.
  std::int64_t width() const { return x()[features_dimension(x())]; }

  LayerSpec& append(LayerSpec spec);
  LayerSpec& append(LayerKind kind);
  /// In the place of a layer that does not fit here.
  void append_simple();

  /// A stream for a layer that draws.
  int draw_stream() { return several_streams ? draw.range(0, 3) : 0; }
  /// One of the subject's own layers that takes x; nullptr if there is none.
  const CustomLayer* draw_custom();
  /// Draws the width and the bias of a layer with a weight, or takes over those of an earlier layer
  /// of its window that lends it the weight.
  void draw_weight(LayerSpec& layer, std::int64_t features);
  /// Appends a layer with a second operand out of all values that fit and that `wanted` accepts,
  /// and with further fields as `choose` draws them; or another layer if there is none.
  using Wanted = bool (*)(const Shape& x, const Shape& other);
  using Choose = void (*)(ModelDraw&, LayerSpec&, const Shape& other);
  void append_joined(
      LayerKind kind, Wanted wanted = [](const Shape&, const Shape&) { return true; },
      Choose choose = [](ModelDraw&, LayerSpec&, const Shape&) {});

 private:
  int layer_count() const { return static_cast<int>(layers_.size()); }
  int find_owner(const LayerSpec& layer);

  std::vector<LayerSpec>& layers_;
  Geometry geometry_;
  Shape input_;
  ShapeWalk walk_;
};

}  // namespace rematch
