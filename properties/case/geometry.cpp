#include "properties/case/geometry.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include "properties/case/rules.h"

namespace rematch {
namespace {

/// Works through the layers in order; every complaint names the layer at hand.
class ShapeWalk {
 public:
  ShapeWalk(const Case& c, Geometry& g) : c_(c), g_(g) {}

  void run() {
    check_input();
    const std::size_t n = c_.layers.size();
    g_.outputs.resize(n);
    g_.layer_parameters.resize(n);
    g_.parameters.reserve(2 * n);
    for (std::size_t i = 0; i < n; ++i) {
      index_ = static_cast<int>(i);
      visit(c_.layers[i]);
    }
  }

  [[noreturn]] void fail(const std::string& expected, const std::string& got) const {
    throw std::invalid_argument(place() + ": expected " + expected + ", got " + got);
  }
  [[noreturn]] void complain(const std::string& what) const {
    throw std::invalid_argument(place() + ": " + what);
  }

 private:
  std::string place() const {
    if (index_ < 0) return "[case] input";
    const LayerSpec& l = c_.layers[static_cast<std::size_t>(index_)];
    return "[case] layer " + std::to_string(index_) + " (" + std::string(to_string(l.kind)) + ")";
  }

  void check_input() {
    if (c_.input.size() != 2 && c_.input.size() != 4) {
      fail("[batch, width] or [batch, channels, height, width]",
           std::to_string(c_.input.size()) + " extents");
    }
    for (const std::int64_t d : c_.input) {
      if (d < 1 || d > kMaxCaseElements) {
        fail("extents in 1.." + std::to_string(kMaxCaseElements), std::to_string(d));
      }
    }
    count(c_.input);
    x_ = Shape(c_.input);
    input_ = x_;
  }

  /// The product of `dims`, each below 2 * kMaxCaseElements, which must not exceed the limit.
  std::int64_t product_of(std::span<const std::int64_t> dims) const {
    std::int64_t product = 1;
    for (const std::int64_t d : dims) {
      product *= d;
      if (product > kMaxCaseElements) too_large();
    }
    return product;
  }
  /// Adds a tensor to the case's total.
  void count(std::span<const std::int64_t> dims) {
    total_ += product_of(dims);
    if (total_ > kMaxCaseElements) too_large();
  }
  [[noreturn]] void too_large() const {
    complain("too large, expected at most " + std::to_string(kMaxCaseElements) +
             " elements in the whole case");
  }

  template <std::size_t N>
  void output(const std::array<std::int64_t, N>& dims) {
    count(dims);
    g_.outputs[static_cast<std::size_t>(index_)].emplace_back(std::span(dims));
  }
  void same_output() {
    count(x_.dims());
    g_.outputs[static_cast<std::size_t>(index_)].push_back(x_);
  }

  void visit(const LayerSpec& l) {
    if (const char* field = stray_field(l)) complain(std::string(field) + " does not apply to it");
    shape_of(l);
    x_ = g_.outputs[static_cast<std::size_t>(index_)].front();
  }

  void shape_of(const LayerSpec& l) {
    switch (l.kind) {
      case LayerKind::linear:
        return linear(l);
      case LayerKind::conv2d:
        return conv(l);
      case LayerKind::max_pool2d:
      case LayerKind::avg_pool2d:
        return pool(l);
      case LayerKind::batch_norm:
        return batch_norm(l);
      case LayerKind::layer_norm:
        norm_parameters(l, x_[x_.rank() - 1]);
        return same_output();
      case LayerKind::dropout:
        if (!(l.p >= 0 && l.p < 1)) fail("p in [0, 1)", std::to_string(l.p));
        return same_output();
      case LayerKind::gaussian_noise:
        if (!(l.p >= 0 && l.p <= 1e6)) fail("p in [0, 1e6]", std::to_string(l.p));
        return same_output();
      case LayerKind::relu:
      case LayerKind::gelu:
      case LayerKind::tanh:
      case LayerKind::sigmoid:
      case LayerKind::softmax:
      case LayerKind::rrelu:
        return same_output();
      case LayerKind::flatten:
        return output(std::array{x_[0], x_.elements() / x_[0]});
      case LayerKind::add:
        if (const Shape other = operand(l); !(other == x_)) {
          fail("operands of one shape", to_string(x_) + " and " + to_string(other));
        }
        return same_output();
      case LayerKind::concat:
        return concat(l);
      case LayerKind::split:
        return split(l);
      case LayerKind::duplicate:
        same_output();
        return same_output();
    }
    complain("unknown kind");
  }

  void need_rank(int rank) const {
    if (x_.rank() != rank) {
      fail("an input of rank " + std::to_string(rank), to_string(x_));
    }
  }

  static bool in_limits(std::int64_t value, std::int64_t low) {
    return value >= low && value <= kMaxCaseElements;
  }

  void need_features(const LayerSpec& l) const {
    if (!in_limits(l.features, 1)) {
      fail("features in 1.." + std::to_string(kMaxCaseElements), std::to_string(l.features));
    }
  }

  void parameter(std::string_view role, const Shape& shape, bool frozen) {
    count(shape.dims());
    g_.layer_parameters[static_cast<std::size_t>(index_)].push_back(
        static_cast<int>(g_.parameters.size()));
    g_.parameters.push_back({index_, role, shape, frozen, 1});
  }

  /// Shares the owner's parameters if the layer is tied, else adds its own.
  void weight_and_bias(const LayerSpec& l, const Shape& weight) {
    if (l.tied_to == -1) {
      parameter("weight", weight, l.frozen);
      if (l.bias) parameter("bias", Shape{l.features}, l.frozen);
      return;
    }
    if (l.tied_to < 0 || l.tied_to >= index_) {
      fail("tied_to an earlier layer", std::to_string(l.tied_to));
    }
    const LayerSpec& owner = c_.layers[static_cast<std::size_t>(l.tied_to)];
    if (owner.kind != l.kind) {
      fail("tied_to a layer of its kind", std::string(to_string(owner.kind)));
    }
    if (owner.tied_to != -1) {
      fail("tied_to the layer that owns the weight, " + std::to_string(owner.tied_to),
           std::to_string(l.tied_to));
    }
    const std::vector<int>& shared = g_.layer_parameters[static_cast<std::size_t>(l.tied_to)];
    const Shape& owned = g_.parameters[static_cast<std::size_t>(shared.front())].shape;
    if (!(owned == weight)) {
      fail("the weight of layer " + std::to_string(l.tied_to) + " to fit, " + to_string(weight),
           to_string(owned));
    }
    if (owner.bias != l.bias)
      complain("bias differs from that of layer " + std::to_string(l.tied_to));
    if (owner.frozen != l.frozen) {
      complain("frozen differs from that of layer " + std::to_string(l.tied_to));
    }
    g_.layer_parameters[static_cast<std::size_t>(index_)] = shared;
    for (const int p : shared) ++g_.parameters[static_cast<std::size_t>(p)].uses;
  }

  void norm_parameters(const LayerSpec& l, std::int64_t extent) {
    parameter("weight", Shape{extent}, l.frozen);
    parameter("bias", Shape{extent}, l.frozen);
  }

  void linear(const LayerSpec& l) {
    need_rank(2);
    need_features(l);
    product_of(std::array{l.features, x_[1]});
    weight_and_bias(l, Shape{l.features, x_[1]});
    output(std::array{x_[0], l.features});
  }

  /// The output extents of a window that slides over the input.
  std::pair<std::int64_t, std::int64_t> window(const LayerSpec& l) const {
    need_rank(4);
    if (!in_limits(l.kernel, 1)) fail("kernel of at least 1", std::to_string(l.kernel));
    if (!in_limits(l.stride, 1)) fail("stride of at least 1", std::to_string(l.stride));
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

  void conv(const LayerSpec& l) {
    const auto [h, w] = window(l);
    need_features(l);
    // The matrix of patches, which a kernel may build, so that a small file cannot ask for it.
    product_of(std::array{x_[1], l.kernel, l.kernel, h, w});
    product_of(std::array{l.features, x_[1], l.kernel, l.kernel});
    weight_and_bias(l, Shape{l.features, x_[1], l.kernel, l.kernel});
    output(std::array{x_[0], l.features, h, w});
  }

  void pool(const LayerSpec& l) {
    const auto [h, w] = window(l);
    if (l.padding > l.kernel / 2) {
      fail("padding of at most half the kernel", std::to_string(l.padding));
    }
    output(std::array{x_[0], x_[1], h, w});
  }

  void batch_norm(const LayerSpec& l) {
    if (c_.protocol.train && x_.elements() == x_[1]) {
      fail("more than one value per channel in train mode", to_string(x_));
    }
    norm_parameters(l, x_[1]);
    count(std::array{std::int64_t{2}, x_[1]});
    g_.buffers.push_back({index_, "running_mean", Shape{x_[1]}, false, 1});
    g_.buffers.push_back({index_, "running_var", Shape{x_[1]}, false, 1});
    same_output();
  }

  const Shape& operand(const LayerSpec& l) const {
    if (!l.from) fail("from: a second operand", "none");
    const ValueRef v = *l.from;
    const bool known = v.layer >= -1 && v.layer < index_ && v.output >= 0 &&
                       v.output < (v.layer < 0 ? 1 : output_count(kind_of(v.layer)));
    if (!known) {
      fail("from: an output of an earlier layer (-1 is the model input)",
           "output " + std::to_string(v.output) + " of layer " + std::to_string(v.layer));
    }
    return g_.shape_of(v, input_);
  }
  LayerKind kind_of(int layer) const { return c_.layers[static_cast<std::size_t>(layer)].kind; }

  void concat(const LayerSpec& l) {
    const Shape& other = operand(l);
    bool fits = other.rank() == x_.rank();
    for (int i = 0; fits && i < x_.rank(); ++i) fits = i == 1 || other[i] == x_[i];
    if (!fits) {
      fail("operands that differ along dimension 1 only",
           to_string(x_) + " and " + to_string(other));
    }
    std::array<std::int64_t, 4> dims{};
    for (int i = 0; i < x_.rank(); ++i) dims[static_cast<std::size_t>(i)] = x_[i];
    dims[1] += other[1];
    const auto used = std::span(dims).first(static_cast<std::size_t>(x_.rank()));
    count(used);
    g_.outputs[static_cast<std::size_t>(index_)].emplace_back(used);
  }

  void split(const LayerSpec& l) {
    if (l.features < 1 || l.features >= x_[1]) {
      fail("features in 1.." + std::to_string(x_[1] - 1) + " (dimension 1 has extent " +
               std::to_string(x_[1]) + ")",
           std::to_string(l.features));
    }
    std::array<std::int64_t, 4> dims{};
    for (int i = 0; i < x_.rank(); ++i) dims[static_cast<std::size_t>(i)] = x_[i];
    const auto used = std::span(dims).first(static_cast<std::size_t>(x_.rank()));
    for (const std::int64_t extent : {l.features, x_[1] - l.features}) {
      dims[1] = extent;
      count(used);
      g_.outputs[static_cast<std::size_t>(index_)].emplace_back(used);
    }
  }

  const Case& c_;
  Geometry& g_;
  Shape input_;
  Shape x_;
  std::int64_t total_ = 0;
  int index_ = -1;
};

/// Fills g.live; see its contract.
void find_live_values(const Case& c, Geometry& g) {
  const int n = static_cast<int>(c.layers.size());
  // last_use[2 * (layer + 1) + output]: the last layer that reads the value as second operand.
  std::vector<int> last_use(2 * (static_cast<std::size_t>(n) + 1), -1);
  const auto slot = [&](int layer, int output) -> int& {
    return last_use[2 * static_cast<std::size_t>(layer + 1) + static_cast<std::size_t>(output)];
  };
  for (int i = 0; i < n; ++i) {
    const LayerSpec& l = c.layers[static_cast<std::size_t>(i)];
    if (l.from) slot(l.from->layer, l.from->output) = i;
  }
  g.live.resize(static_cast<std::size_t>(n) + 1);
  std::vector<ValueRef> others;
  for (int b = 0; b <= n; ++b) {
    std::erase_if(others, [&](ValueRef v) { return slot(v.layer, v.output) < b; });
    if (b >= 1 && slot(b - 2, 0) >= b) {
      const bool before_twin = !others.empty() && others.back().layer == b - 2;
      others.insert(before_twin ? others.end() - 1 : others.end(), ValueRef{b - 2, 0});
    }
    if (b >= 1 && output_count(c.layers[static_cast<std::size_t>(b - 1)].kind) == 2) {
      int& last = slot(b - 1, 1);
      if (last < 0) last = n;
      others.push_back({b - 1, 1});
    }
    std::vector<ValueRef>& live = g.live[static_cast<std::size_t>(b)];
    live.reserve(others.size() + 1);
    live.push_back({b - 1, 0});
    live.insert(live.end(), others.begin(), others.end());
  }
}

}  // namespace

Geometry validate(const Case& c) {
  if (c.dtype != DType::float32 && c.dtype != DType::float64) {
    throw std::invalid_argument("[case] dtype: expected float32 or float64, got " +
                                std::string(to_string(c.dtype)));
  }
  if (c.layers.empty() || c.layers.size() > static_cast<std::size_t>(kMaxLayers)) {
    throw std::invalid_argument("[case] layers: expected 1.." + std::to_string(kMaxLayers) +
                                " layers, got " + std::to_string(c.layers.size()));
  }
  Geometry g;
  ShapeWalk(c, g).run();
  check_plan(c);
  check_protocol(c);
  for (std::size_t i = 0; i < c.layers.size(); ++i) {
    if (!c.layers[i].in_place) continue;
    if (const char* hazard = in_place_hazard(c, static_cast<int>(i))) {
      throw std::invalid_argument("[case] layer " + std::to_string(i) + " (relu): in_place " +
                                  hazard);
    }
  }
  find_live_values(c, g);
  return g;
}

int streams_of(const Case& c) {
  int last = 0;
  for (const LayerSpec& l : c.layers) last = std::max(last, l.stream);
  return last + 1;
}

std::vector<SegmentSpec> segments_of(const Case& c) {
  if (!c.plan.sequential) return c.plan.segments;
  const SequentialSpec& s = *c.plan.sequential;
  const int layers = static_cast<int>(c.layers.size());
  const int size = layers / s.segments;
  std::vector<SegmentSpec> segments;
  segments.reserve(static_cast<std::size_t>(s.segments));
  for (int i = 0; i + 1 < s.segments; ++i) {
    segments.push_back({i * size, (i + 1) * size, s.choice, {}});
  }
  if (!s.last_stored) segments.push_back({(s.segments - 1) * size, layers, s.choice, {}});
  return segments;
}

}  // namespace rematch
