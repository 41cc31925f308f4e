#include <algorithm>
#include <array>
#include <span>
#include <stdexcept>
#include <utility>

#include "properties/case/geometry.h"
#include "properties/case/rules.h"
#include "properties/generate/parts.h"

namespace rematch {
namespace {

using Extents = std::array<std::int64_t, 4>;

constexpr int kMostLayers = 24;
constexpr std::size_t kKinds = static_cast<std::size_t>(LayerKind::duplicate) + 1;
/// By kind, in its order.
using Weights = std::array<int, kKinds>;
constexpr Weights kOnRows{85, 0, 0, 0, 15, 20, 30, 8, 8, 8, 6, 26, 8, 8, 2, 24, 12, 14, 12};
constexpr Weights kOnImages{0, 75, 12, 12, 20, 8, 30, 6, 6, 6, 5, 22, 8, 8, 0, 22, 12, 12, 12};
constexpr std::int64_t kWidest = 24;

/// Draws layer after layer, so that each fits the value that it meets.
class WideModel {
 public:
  WideModel(DrawSource& draw, Case& c)
      : draw_(draw), c_(c), on_rows_(allowed(kOnRows)), on_images_(allowed(kOnImages)) {}

  void run() {
    constexpr std::array ranges{std::pair{2, 5}, std::pair{6, 11}, std::pair{12, kMostLayers}};
    const auto [low, high] = ranges[draw_.weighted(std::array{60, 30, 10})];
    const int layers = draw_.range(low, high);
    const bool rows = any(on_rows_);
    const bool image = (draw_.chance(50, Feature::images) || !rows) && any(on_images_);
    if (!rows && !image) throw std::invalid_argument("[generate] no layer kind may be drawn");
    several_streams_ = draw_.chance(30, Feature::named_stream);
    const int flatten_at = image && draw_.chance(60) && rows && draw_.may(Feature::flatten)
                               ? draw_.range(1, layers - 1)
                               : -1;
    draw_input(image);
    c_.layers.reserve(static_cast<std::size_t>(layers));
    for (int i = 0; i < layers; ++i) {
      if (i == flatten_at) {
        append(LayerKind::flatten);
      } else {
        draw_layer();
      }
    }
    freeze();
  }

 private:
  Weights allowed(Weights weights) const {
    for (std::size_t i = 0; i < kKinds; ++i) {
      if (!draw_.may(static_cast<Feature>(i))) weights[i] = 0;
    }
    return weights;
  }
  static bool any(const Weights& weights) {
    return std::any_of(weights.begin(), weights.end(), [](int w) { return w > 0; });
  }

  struct Value {
    ValueRef ref;
    Extents dims{};
    int rank = 0;
  };

  void draw_input(bool image) {
    // Few different sizes, so that skips and ties find partners; mostly no multiples of 4.
    for (std::int64_t& width : palette_) width = draw_.range(1, 12);
    rank_ = image ? 4 : 2;
    x_[0] = draw_.weighted(std::array{1, 2}) == 0 ? 1 : draw_.range(2, 5);
    x_[1] = image ? draw_.range(1, 4) : palette_[0];
    if (image) x_[2] = draw_.range(3, 7);
    if (image) x_[3] = draw_.chance(70) ? x_[2] : draw_.range(3, 7);
    c_.input.assign(x_.begin(), x_.begin() + rank_);
    remember({-1, 0}, x_);
  }

  void remember(ValueRef ref, const Extents& dims) { values_[count_++] = {ref, dims, rank_}; }
  std::span<const Value> values() const { return std::span(values_).first(count_); }

  /// Adds a layer whose output 0 has the extents x_, updated by the caller beforehand.
  LayerSpec& append(LayerKind kind) {
    if (kind == LayerKind::flatten && rank_ == 4) {
      x_[1] *= x_[2] * x_[3];
      x_[2] = x_[3] = 0;
      rank_ = 2;
    }
    LayerSpec& layer = c_.layers.emplace_back();
    layer.kind = kind;
    remember({static_cast<int>(c_.layers.size()) - 1, 0}, x_);
    return layer;
  }
  /// In the place of a layer that does not fit here.
  void append_simple() {
    using enum LayerKind;
    append(draw_.may(Feature::relu) ? relu : draw_.pick_kind(std::array{tanh, gelu, sigmoid}));
  }
  void remember_second(const Extents& dims) {
    remember({static_cast<int>(c_.layers.size()) - 1, 1}, dims);
  }

  void draw_layer() {
    using enum LayerKind;
    const auto kind = static_cast<LayerKind>(draw_.weighted(rank_ == 2 ? on_rows_ : on_images_));
    switch (kind) {
      case linear:
        return draw_linear();
      case conv2d:
        return draw_conv();
      case max_pool2d:
      case avg_pool2d:
        return draw_pool(kind);
      case add:
      case concat:
        return draw_join(kind);
      case split:
        return draw_split();
      case batch_norm: {
        const std::int64_t per_channel = x_[0] * (rank_ == 4 ? x_[2] * x_[3] : 1);
        if (c_.protocol.train && per_channel == 1) return append_simple();
        append(batch_norm);
        return;
      }
      case dropout:
        append(dropout).p = draw_.pick(std::array{0.1, 0.25, 0.5, 0.5, 0.9, 0.0});
        return draw_stream();
      case gaussian_noise:
        append(gaussian_noise).p = draw_.pick(std::array{0.1, 0.5, 1.0, 0.0});
        return draw_stream();
      case rrelu:
        append(rrelu);
        return draw_stream();
      case duplicate:
        append(duplicate);
        remember_second(x_);
        return;
      default:
        append(kind);
    }
  }

  void draw_stream() {
    if (several_streams_) c_.layers.back().stream = draw_.range(0, 3);
  }

  /// An earlier owner of a weight that fits `kind` with the current input, or -1.
  int find_owner(LayerKind kind, std::int64_t kernel) {
    if (!draw_.chance(50, Feature::tied_weight)) return -1;
    int found = -1;
    for (std::size_t i = 0; i < c_.layers.size(); ++i) {
      const LayerSpec& l = c_.layers[i];
      if (l.kind == kind && l.tied_to == -1 && l.kernel == kernel && inputs_[i] == x_[1]) {
        found = static_cast<int>(i);
      }
    }
    return found;
  }

  /// Sets width and bias anew or by the owner, and moves x_ on.
  void draw_weight(LayerSpec& layer, int owner, std::int64_t features) {
    layer.features = features;
    layer.bias = draw_.chance(80);
    if (owner >= 0) {
      const LayerSpec& o = c_.layers[static_cast<std::size_t>(owner)];
      layer.features = o.features;
      layer.bias = o.bias;
      layer.tied_to = owner;
    }
    inputs_[c_.layers.size()] = x_[1];
    x_[1] = layer.features;
  }

  void draw_linear() {
    LayerSpec spec;
    const std::size_t choice = draw_.weighted(std::array{55, 30, 12, 3});
    const std::int64_t features =
        choice < 2 ? palette_[choice] : draw_.range(1, choice == 2 ? 16 : 40);
    draw_weight(spec, find_owner(LayerKind::linear, 0), features);
    spec.kind = LayerKind::linear;
    append(LayerKind::linear) = spec;
  }

  void draw_conv() {
    LayerSpec spec;
    const std::int64_t smallest = std::min(x_[2], x_[3]);
    spec.kernel = draw_.pick(std::array{1, 2, 3, 3, 3});
    spec.padding = draw_.range(0, 1);
    spec.stride = draw_.chance(85) ? 1 : 2;
    if (spec.kernel > smallest + 2 * spec.padding) spec.kernel = 1;
    // A kernel of 1 gains only zeros from padding, and repeated padding would grow the image.
    if (spec.kernel == 1) spec.padding = 0;
    const std::int64_t features = draw_.chance(60) ? x_[1] : draw_.range(1, 5);
    draw_weight(spec, find_owner(LayerKind::conv2d, spec.kernel), std::min(features, kWidest));
    slide(spec);
    spec.kind = LayerKind::conv2d;
    append(LayerKind::conv2d) = spec;
  }

  void draw_pool(LayerKind kind) {
    LayerSpec spec;
    const std::int64_t smallest = std::min(x_[2], x_[3]);
    spec.kernel = draw_.range(2, 3);
    spec.padding = draw_.chance(25) ? 1 : 0;
    spec.stride = draw_.range(1, 2);
    if (spec.kernel > smallest + 2 * spec.padding) spec.kernel = 1;
    if (spec.kernel == 1) spec.padding = 0;
    slide(spec);
    spec.kind = kind;
    append(kind) = spec;
  }

  void slide(const LayerSpec& window) {
    for (const std::size_t i : {2U, 3U}) {
      x_[i] = (x_[i] + 2 * window.padding - window.kernel) / window.stride + 1;
    }
  }

  bool fits(const Value& v, LayerKind kind) const {
    if (v.rank != rank_) return false;
    if (kind == LayerKind::add) return v.dims == x_;
    return v.dims[0] == x_[0] && v.dims[2] == x_[2] && v.dims[3] == x_[3] &&
           v.dims[1] + x_[1] <= kWidest;
  }

  void draw_join(LayerKind kind) {
    const auto all = values();
    const auto partners =
        std::count_if(all.begin(), all.end(), [&](const Value& v) { return fits(v, kind); });
    if (partners == 0) {
      append_simple();
      return;
    }
    // The oldest partner makes the longest skip.
    auto chosen = draw_.chance(40) ? 0 : draw_.below(static_cast<std::uint32_t>(partners));
    const Value* value = nullptr;
    for (const Value& v : all) {
      if (fits(v, kind) && chosen-- == 0) value = &v;
    }
    const ValueRef from = value->ref;
    if (kind == LayerKind::concat) x_[1] += value->dims[1];
    append(kind).from = from;
  }

  void draw_split() {
    if (x_[1] < 2) {
      append_simple();
      return;
    }
    const std::int64_t first = draw_.chance(40) && x_[1] % 2 == 0
                                   ? x_[1] / 2
                                   : draw_.range(1, static_cast<int>(x_[1]) - 1);
    Extents rest = x_;
    rest[1] -= first;
    x_[1] = first;
    append(LayerKind::split).features = first;
    remember_second(rest);
  }

  void freeze() {
    const int layers = static_cast<int>(c_.layers.size());
    int begin = 0;
    int end = 0;
    if (draw_.chance(20, Feature::frozen_parameters)) {
      end = draw_.range(1, layers);
    } else if (draw_.chance(12, Feature::frozen_parameters)) {
      begin = draw_.range(0, layers - 1);
      end = begin + 1;
    }
    for (int i = begin; i < end; ++i) {
      LayerSpec& l = c_.layers[static_cast<std::size_t>(i)];
      if (has_parameters(l.kind)) l.frozen = true;
    }
    for (LayerSpec& l : c_.layers) {
      if (l.tied_to >= 0) l.frozen = c_.layers[static_cast<std::size_t>(l.tied_to)].frozen;
    }
    if (!loss_requires_grad(c_)) c_.protocol.input_requires_grad = true;
  }

  DrawSource& draw_;
  Case& c_;
  Weights on_rows_;
  Weights on_images_;
  Extents x_{};
  int rank_ = 0;
  bool several_streams_ = false;
  std::array<std::int64_t, 2> palette_{};
  std::array<std::int64_t, kMostLayers> inputs_{};
  std::array<Value, 2 * kMostLayers + 1> values_{};
  std::size_t count_ = 0;
};

}  // namespace

bool loss_requires_grad(const Case& c) {
  if (c.protocol.input_requires_grad) return true;
  return std::any_of(c.layers.begin(), c.layers.end(),
                     [](const LayerSpec& l) { return has_parameters(l.kind) && !l.frozen; });
}

void draw_wide_model(DrawSource& draw, Case& c) { WideModel(draw, c).run(); }

}  // namespace rematch
