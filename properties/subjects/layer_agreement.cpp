#include "properties/subjects/layer_agreement.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <deque>
#include <span>
#include <utility>

#include "engine/ambient/ambient_scope.h"
#include "engine/autograd/backward.h"
#include "engine/cuda/runtime/device.h"
#include "engine/ops/arithmetic.h"
#include "engine/tensor/dispatch.h"
#include "properties/layers/layer.h"
#include "properties/record/case_data.h"
#include "properties/record/direction.h"
#include "properties/subjects/engine_model.h"

namespace rematch {
namespace {

/// Streams of the operands and of the gradients, far from those of the case's data.
constexpr std::uint64_t kOperandArrays = std::uint64_t{1} << 20;
constexpr std::uint64_t kGradientArrays = std::uint64_t{1} << 21;

struct NamedValues {
  std::string what;
  std::vector<double> values;
};

Tensor random_tensor(const Case& c, std::uint64_t array, const Shape& shape, bool absolute) {
  std::vector<double> values = direction(c.seed, array, shape.elements());
  if (absolute) {
    for (double& v : values) v = std::fabs(v);
  }
  // Both runs round the same double to the same float.
  return Tensor::from(values, shape, c.dtype);
}

/// A value moves when the vector grows, so readers would miss it.
using Seen = std::deque<NamedValues>;

void read_values(const Tensor& t, std::string what, Seen& seen) {
  seen.push_back({std::move(what), {}});
  std::vector<double>& to = seen.back().values;
  if (t.device() == Device::cpu) {
    to = t.to_vector();
    return;
  }
  t.storage()->memory().read(t.raw(), t.bytes(),
                             [&to, dtype = t.dtype()](std::span<const std::byte> bytes) {
                               for_floating(dtype, "values", [&]<class T>() {
                                 std::vector<T> values(bytes.size() / sizeof(T));
                                 std::memcpy(values.data(), bytes.data(), bytes.size());
                                 to.assign(values.begin(), values.end());
                               });
                             });
}

/// The layers of a case on one ledger's device.
class LayersAlone {
 public:
  /// `absolute`: every operand, parameter and gradient by its magnitude. Sums of products then are
  /// the sums of the magnitudes of their terms.
  LayersAlone(const Case& c, const Geometry& geometry, const std::shared_ptr<Ledger>& ledger,
              bool absolute)
      : c_(c),
        geometry_(geometry),
        absolute_(absolute),
        scope_(ledger, c.seed),
        model_(c, geometry, request_, nullptr, record_),
        streams_(ambient().streams) {
    if (absolute) model_.take_magnitudes();
  }

  /// Values that each layer of [0, layers) that is `wanted` computes; none of the others.
  template <class Wanted>
  std::vector<Seen> run(const Wanted& wanted) {
    const std::size_t layers = c_.layers.size();
    // All before the first one runs, so that a device gets them in one copy.
    std::vector<Data> data(layers);
    for (std::size_t i = 0; i < layers; ++i) {
      if (wanted(i)) data[i] = make_data(i);
    }
    std::vector<Seen> seen(layers);
    for (std::size_t i = 0; i < layers; ++i) {
      if (wanted(i)) run_layer(i, std::move(data[i]), seen[i]);
    }
    ambient().ledger->memory().finish_reads();
    return seen;
  }

 private:
  /// By place among the live values before the layer, and after it; undefined for what the layer
  /// does not read, or make.
  struct Data {
    Tensors operands;
    Tensors gradients;
  };

  Data make_data(std::size_t layer) const {
    const std::vector<ValueRef>& before = geometry_.live[layer];
    const std::vector<ValueRef>& after = geometry_.live[layer + 1];
    const std::vector<ValueRef>& from = c_.layers[layer].from;
    const Shape input(c_.input);
    Data data{Tensors(before.size()), Tensors(after.size())};
    for (std::size_t i = 0; i < before.size(); ++i) {
      if (i > 0 && std::find(from.begin(), from.end(), before[i]) == from.end()) continue;
      if (before[i].layer < 0 && vocabulary_of(c_.layers) > 0) {
        Generator tokens{c_.seed, kInputStream, 0};
        data.operands[i] = make_input(c_, tokens);
        continue;
      }
      data.operands[i] = random_tensor(c_, kOperandArrays + 64 * layer + i,
                                       geometry_.shape_of(before[i], input), absolute_);
      data.operands[i].set_requires_grad(true);
    }
    for (std::size_t i = 0; i < after.size(); ++i) {
      if (after[i].layer != static_cast<int>(layer)) continue;
      data.gradients[i] = random_tensor(c_, kGradientArrays + 64 * layer + i,
                                        geometry_.shape_of(after[i], input), absolute_);
    }
    return data;
  }

  void run_layer(std::size_t layer, Data data, Seen& seen) {
    ambient().streams = streams_;
    Tensors live = data.operands;
    // No leaf where the layer works in place.
    if (c_.layers[layer].in_place) live[0] = scale(live[0], 1);
    const Tensors outputs = model_.run_alone(static_cast<int>(layer), live);
    Tensors roots;
    Tensors gradients;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (!data.gradients[i].defined()) continue;
      read_values(outputs[i], "output " + std::to_string(i), seen);
      if (!outputs[i].requires_grad()) continue;
      roots.push_back(outputs[i]);
      gradients.push_back(data.gradients[i]);
    }
    if (!roots.empty()) backward(roots, gradients);
    for (std::size_t i = 0; i < data.operands.size(); ++i) {
      const Tensor& leaf = data.operands[i];
      if (!leaf.defined() || !leaf.grad().defined()) continue;
      read_values(leaf.grad(), "gradient of operand " + std::to_string(i), seen);
    }
    for (const int p : geometry_.layer_parameters[layer]) {
      Tensor parameter = model_.parameters()[static_cast<std::size_t>(p)];
      if (!parameter.grad().defined()) continue;
      const ParameterInfo& info = geometry_.parameters[static_cast<std::size_t>(p)];
      read_values(parameter.grad(), "gradient of " + std::string(info.role), seen);
      // The next layer may have the same parameter.
      parameter.set_grad(Tensor());
    }
  }

  const Case& c_;
  const Geometry& geometry_;
  bool absolute_;
  AmbientScope scope_;
  Record record_;
  RunRequest request_;
  EngineModel model_;
  Streams streams_;
};

/// The multiply-adds of a layer that is a matrix product or a convolution, each of its passes.
std::int64_t products_of(const Case& c, const Geometry& geometry, int layer) {
  const auto index = static_cast<std::size_t>(layer);
  const std::int64_t kernel = c.layers[index].kernel;
  const Shape x = geometry.shape_of({layer - 1, 0}, Shape(c.input));
  const std::int64_t window = kernel > 0 ? kernel * kernel : 1;
  return geometry.outputs[index][0].elements() * x[features_dimension(x)] * window;
}

/// The number of products in each sum of a layer whose sums differ in their order from the CPU's; 0
/// for what has the same bits on every device, small matrix products among it.
std::int64_t terms_of(const Case& c, const Geometry& geometry, int layer, std::string_view what,
                      Device device) {
  const auto index = static_cast<std::size_t>(layer);
  const LayerSpec& spec = c.layers[index];
  if (!layer_of(spec).low_precision) return 0;
  const bool is_convolution = spec.kernel > 0;
  if (!is_convolution && device == Device::cuda &&
      products_of(c, geometry, layer) <= cuda::direct_products()) {
    return 0;
  }
  const Shape x = geometry.shape_of({layer - 1, 0}, Shape(c.input));
  const Shape& y = geometry.outputs[index][0];
  const std::int64_t window = is_convolution ? spec.kernel * spec.kernel : 1;
  const std::int64_t features = y[features_dimension(y)];
  if (what.starts_with("output")) return x[features_dimension(x)] * window + 1;
  if (what.starts_with("gradient of operand 0")) return features * window;
  if (what.starts_with("gradient of operand")) return 0;
  return y.elements() / features;
}

/// The error that cuDNN may add to a sum of `terms` products: F(2x2, 3x3) of Winograd forms others
/// than the direct sum, so its error is not relative to the direct sum's terms, but to the largest
/// operands (derived in engine/cuda/kernels/conv2d.h). Operands and gradients are in (-1, 1).
double of_transforms(const Case& c, const Geometry& geometry, int layer, std::int64_t terms,
                     double u, Device device) {
  const LayerSpec& spec = c.layers[static_cast<std::size_t>(layer)];
  if (spec.kernel == 0 || terms == 0) return 0;
  const bool on_cudnn =
      device == Device::cuda && products_of(c, geometry, layer) > cuda::direct_products();
  if (!on_cudnn) return 0;
  const double largest_weight = c.data == DataKind::small_integers ? 3 : 1;
  const auto n = static_cast<double>(terms);
  return n * (n + 110) * u * largest_weight;
}

/// The bound of element i: relative * magnitudes[i] + absolute.
struct Slack {
  double relative = 0;
  double absolute = 0;
};

Agreement worst_of(int layer, const NamedValues& host, const NamedValues& device,
                   const NamedValues* magnitudes, const Slack& slack) {
  Agreement worst{layer, host.what, 0, 0, 0, 0, true};
  double most = -1;
  for (std::size_t i = 0; i < host.values.size(); ++i) {
    const double a = host.values[i];
    const double b = device.values[i];
    const double bound =
        magnitudes == nullptr ? 0 : slack.relative * magnitudes->values[i] + slack.absolute;
    const bool same = std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b) ||
                      (std::isnan(a) && std::isnan(b));
    const double distance = std::fabs(a - b);
    const bool holds = same || distance <= bound;
    const double used = same ? 0 : bound > 0 ? distance / bound : INFINITY;
    if (used <= most && holds) continue;
    if (!worst.holds && holds) continue;
    most = used;
    worst = {layer, host.what, static_cast<std::int64_t>(i), a, b, bound, holds};
    if (!holds) break;
  }
  return worst;
}

}  // namespace

std::vector<Agreement> compare_layers(const Case& c, const Geometry& geometry,
                                      const std::shared_ptr<Ledger>& host,
                                      const std::shared_ptr<Ledger>& device) {
  // A sum of n terms and its n products, added in any order and with or without fused steps, is
  // within n u / (1 - n u) of the exact one, relative to the sum of the magnitudes of its terms
  // (Higham, Accuracy and Stability of Numerical Algorithms, chapters 3 and 4). Two such sums are
  // within twice that. The sum of magnitudes is itself computed, and may come out too small by the
  // same factor.
  const double u = c.dtype == DType::float32 ? 0x1p-24 : 0x1p-53;
  const auto has_products = [&](std::size_t layer) {
    return layer_of(c.layers[layer]).low_precision;
  };
  const auto any = [](std::size_t) { return true; };
  const std::vector<Seen> by_host = LayersAlone(c, geometry, host, false).run(any);
  const std::vector<Seen> by_device = LayersAlone(c, geometry, device, false).run(any);
  const std::vector<Seen> sizes = LayersAlone(c, geometry, host, true).run(has_products);
  std::vector<Agreement> all;
  for (int layer = 0; layer < static_cast<int>(c.layers.size()); ++layer) {
    const Seen& on_host = by_host[static_cast<std::size_t>(layer)];
    const Seen& on_device = by_device[static_cast<std::size_t>(layer)];
    const Seen& magnitudes = sizes[static_cast<std::size_t>(layer)];
    for (std::size_t i = 0; i < on_host.size(); ++i) {
      if (i >= on_device.size() || on_device[i].what != on_host[i].what ||
          on_device[i].values.size() != on_host[i].values.size()) {
        all.push_back({layer, on_host[i].what + " is missing", 0, 0, 0, 0, false});
        break;
      }
      const std::int64_t n = terms_of(c, geometry, layer, on_host[i].what, device->device());
      const double gamma = static_cast<double>(n) * u / (1 - static_cast<double>(n) * u);
      const Slack slack{2 * gamma / (1 - gamma),
                        of_transforms(c, geometry, layer, n, u, device->device())};
      all.push_back(
          worst_of(layer, on_host[i], on_device[i], n > 0 ? &magnitudes[i] : nullptr, slack));
    }
  }
  return all;
}

}  // namespace rematch
