#include "properties/layers/geometry.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "properties/layers/layer.h"

namespace rematch {
namespace {

std::string in_words(ValueRef v) {
  return "output " + std::to_string(v.output) + " of layer " + std::to_string(v.layer);
}

/// The first field of the layer that is set although its kind does not have it, or nullopt.
std::optional<std::string_view> stray_field(const LayerSpec& spec, const Layer& layer) {
  static const LayerSpec kUsual;
  std::optional<std::string_view> stray;
  for_each_field(spec, kUsual, [&](const auto& field, const auto& value, const auto& usual) {
    if (!stray && !(value == usual) && !layer.takes(field.name)) stray = field.name;
  });
  return stray;
}

}  // namespace

ShapeWalk::ShapeWalk(const std::vector<std::int64_t>& input, int further_inputs,
                     const std::vector<LayerSpec>& layers, bool train, Geometry& g)
    : dims_(input), layers_(layers), train_(train), g_(g) {
  g_.inputs = 1 + further_inputs;
  check_input();
  g_.outputs.reserve(layers.size());
  g_.layer_parameters.reserve(layers.size());
  g_.parameters.reserve(2 * layers.size());
}

void ShapeWalk::step() {
  ++index_;
  g_.outputs.emplace_back();
  g_.layer_parameters.emplace_back();
  const Layer& layer = layer_of(spec());
  if (const auto field = stray_field(spec(), layer)) {
    complain(std::string(*field) + " does not apply to it");
  }
  if (spec().stream < 0 || spec().stream >= kMaxStreams) {
    fail("stream in 0.." + std::to_string(kMaxStreams - 1), std::to_string(spec().stream));
  }
  check_operands(layer);
  layer.shape(*this);
  x_ = g_.outputs.back().front();
}

void ShapeWalk::check_operands(const Layer& layer) const {
  const int given = static_cast<int>(spec().from.size()) + 1;
  if (given != layer.operands) {
    fail("from: " + std::to_string(layer.operands - 1) + " further operand" +
             (layer.operands == 2 ? "" : "s"),
         std::to_string(given - 1));
  }
  for (const ValueRef v : spec().from) {
    if (!known(v)) fail("from: an output of an earlier layer (-1 is the model input)", in_words(v));
    if (v.layer < 0 && takes_tokens()) fail("from: numbers", "the model input, which is tokens");
  }
}

bool ShapeWalk::known(ValueRef v) const {
  if (v.layer < -1 || v.output < 0) return false;
  if (v.layer < 0) return v.output < g_.inputs;
  return v.layer < index_ &&
         static_cast<std::size_t>(v.output) < g_.outputs[static_cast<std::size_t>(v.layer)].size();
}

const Shape& ShapeWalk::operand(int i) const {
  return i == 0 ? x_ : shape_of(spec().from[static_cast<std::size_t>(i) - 1]);
}

void ShapeWalk::fail(const std::string& expected, const std::string& got) const {
  throw std::invalid_argument(place() + ": expected " + expected + ", got " + got);
}

void ShapeWalk::complain(const std::string& what) const {
  throw std::invalid_argument(place() + ": " + what);
}

std::string ShapeWalk::place() const {
  if (index_ < 0) return "[case] input";
  return "[case] layer " + std::to_string(index_) + " (" + std::string(to_string(spec().kind)) +
         ")";
}

void ShapeWalk::check_input() {
  if (dims_.size() < 2 || dims_.size() > Shape::kMaxRank) {
    fail("[batch, width], [batch, tokens, width] or [batch, channels, height, width, ...]",
         std::to_string(dims_.size()) + " extents");
  }
  for (const std::int64_t d : dims_) {
    if (d < 1 || d > kMaxCaseElements) {
      fail("extents in 1.." + std::to_string(kMaxCaseElements), std::to_string(d));
    }
  }
  for (int i = 0; i < g_.inputs; ++i) count(dims_);
  x_ = Shape(std::span(dims_));
  input_ = x_;
}

/// Each extent is below 2 * kMaxCaseElements.
std::int64_t ShapeWalk::product_of(std::span<const std::int64_t> dims) const {
  std::int64_t product = 1;
  for (const std::int64_t d : dims) {
    product *= d;
    if (product > kMaxCaseElements) too_large();
  }
  return product;
}

void ShapeWalk::count(std::span<const std::int64_t> dims) {
  total_ += product_of(dims);
  if (total_ > kMaxCaseElements) too_large();
}

void ShapeWalk::too_large() const {
  complain("too large, expected at most " + std::to_string(kMaxCaseElements) +
           " elements in the whole case");
}

void ShapeWalk::output(std::span<const std::int64_t> dims) {
  count(dims);
  g_.outputs.back().emplace_back(dims);
}

void ShapeWalk::output_of_width(std::int64_t width) {
  output(x_.with_extent(features_dimension(x_), width).dims());
}

void ShapeWalk::need_rank(int rank) const {
  if (x_.rank() != rank) fail("an input of rank " + std::to_string(rank), to_string(x_));
}

void ShapeWalk::need_tokens() const {
  if (index_ != 0) complain("tokens are the model input alone: it must be the first layer");
  need_rank(2);
  if (spec().vocabulary < 1 || spec().vocabulary > kMaxCaseElements) {
    fail("vocabulary in 1.." + std::to_string(kMaxCaseElements), std::to_string(spec().vocabulary));
  }
}

void ShapeWalk::need_features() const {
  if (spec().features < 1 || spec().features > kMaxCaseElements) {
    fail("features in 1.." + std::to_string(kMaxCaseElements), std::to_string(spec().features));
  }
}

std::pair<std::int64_t, std::int64_t> ShapeWalk::window() const {
  const LayerSpec& l = spec();
  need_rank(4);
  const auto in_limits = [](std::int64_t value) { return value >= 1 && value <= kMaxCaseElements; };
  if (!in_limits(l.kernel)) fail("kernel of at least 1", std::to_string(l.kernel));
  if (!in_limits(l.stride)) fail("stride of at least 1", std::to_string(l.stride));
  if (l.padding < 0 || l.padding > kMaxCaseElements / 4) {
    fail("padding from 0 to " + std::to_string(kMaxCaseElements / 4), std::to_string(l.padding));
  }
  const std::int64_t h = x_[2] + 2 * l.padding;
  const std::int64_t w = x_[3] + 2 * l.padding;
  if (l.kernel > h || l.kernel > w) {
    complain("kernel " + std::to_string(l.kernel) + " does not fit the padded input " +
             std::to_string(h) + " x " + std::to_string(w));
  }
  return {(h - l.kernel) / l.stride + 1, (w - l.kernel) / l.stride + 1};
}

void ShapeWalk::parameter(std::string_view role, const Shape& shape, double low, double high) {
  count(shape.dims());
  g_.layer_parameters.back().push_back(static_cast<int>(g_.parameters.size()));
  g_.parameters.push_back({index_, role, shape, spec().frozen, 1, low, high});
}

void ShapeWalk::buffer(std::string_view role, const Shape& shape, double initial) {
  count(shape.dims());
  g_.buffers.push_back({index_, role, shape, false, 1, initial, initial});
}

void ShapeWalk::weight_and_bias(const Shape& weight) {
  if (spec().tied_to != -1) return share(spec().tied_to, weight);
  const auto by_fan_in = [this](std::string_view role, const Shape& shape) {
    const std::int64_t fan_in = shape.rank() > 1 ? shape.elements() / shape[0] : shape[0];
    const double most = 1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(fan_in, 1)));
    parameter(role, shape, -most, most);
  };
  by_fan_in("weight", weight);
  if (spec().bias) by_fan_in("bias", Shape{weight[0]});
}

void ShapeWalk::share(int tied_to, const Shape& weight) {
  if (tied_to < 0 || tied_to >= index_) {
    fail("tied_to an earlier layer", std::to_string(tied_to));
  }
  const LayerSpec& owner = layers_[static_cast<std::size_t>(tied_to)];
  const std::string name = std::to_string(tied_to);
  if (!lends_weight(owner.kind, spec().kind)) {
    fail("tied_to a layer of its kind, or one that lends it a weight",
         std::string(to_string(owner.kind)));
  }
  if (owner.tied_to != -1) {
    fail("tied_to the layer that owns the weight, " + std::to_string(owner.tied_to), name);
  }
  const Shape& owned = g_.weight_of(tied_to);
  if (!(owned == weight)) {
    fail("the weight of layer " + name + " to fit, " + to_string(weight), to_string(owned));
  }
  if (has_bias(owner) != spec().bias) complain("bias differs from that of layer " + name);
  if (owner.frozen != spec().frozen) complain("frozen differs from that of layer " + name);
  const std::vector<int> shared = g_.layer_parameters[static_cast<std::size_t>(tied_to)];
  g_.layer_parameters.back() = shared;
  for (const int p : shared) ++g_.parameters[static_cast<std::size_t>(p)].uses;
}

void find_live_values(const std::vector<LayerSpec>& layers, Geometry& g) {
  const int n = static_cast<int>(layers.size());
  const auto outputs_of = [&](int layer) {
    return layer < 0 ? static_cast<std::size_t>(g.inputs)
                     : g.outputs[static_cast<std::size_t>(layer)].size();
  };
  // last_use[first[layer + 1] + output]: the last layer that reads the value as further operand.
  std::vector<std::size_t> first(static_cast<std::size_t>(n) + 1);
  std::size_t values = 0;
  for (int i = -1; i < n; ++i) {
    first[static_cast<std::size_t>(i + 1)] = values;
    values += outputs_of(i);
  }
  std::vector<int> last_use(values, -1);
  const auto slot = [&](ValueRef v) -> int& {
    return last_use[first[static_cast<std::size_t>(v.layer + 1)] +
                    static_cast<std::size_t>(v.output)];
  };
  for (int i = 0; i < n; ++i) {
    for (const ValueRef v : layers[static_cast<std::size_t>(i)].from) slot(v) = i;
  }
  g.live.resize(static_cast<std::size_t>(n) + 1);
  std::vector<ValueRef> others;
  for (int b = 0; b <= n; ++b) {
    std::erase_if(others, [&](ValueRef v) { return slot(v) < b; });
    if (b >= 1 && slot({b - 2, 0}) >= b) {
      auto place = others.end();
      while (place != others.begin() && (place - 1)->layer == b - 2) --place;
      others.insert(place, ValueRef{b - 2, 0});
    }
    for (int k = 1; k < static_cast<int>(outputs_of(b - 1)); ++k) {
      int& last = slot({b - 1, k});
      if (last < 0) last = n;
      others.push_back({b - 1, k});
    }
    std::vector<ValueRef>& live = g.live[static_cast<std::size_t>(b)];
    live.reserve(others.size() + 1);
    live.push_back({b - 1, 0});
    live.insert(live.end(), others.begin(), others.end());
  }
}

}  // namespace rematch
