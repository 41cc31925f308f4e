#include "properties/subjects/layer_agreement.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "engine/ambient/ambient_scope.h"
#include "engine/autograd/backward.h"
#include "engine/cuda/device.h"
#include "engine/ops/arithmetic.h"
#include "engine/tensor/host_fill.h"
#include "properties/layers/layer.h"
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

/// `absolute`: every operand, parameter and gradient by its magnitude. Sums of products then are
/// the sums of the magnitudes of their terms.
std::vector<NamedValues> run_alone(const Case& c, const Geometry& geometry, int layer,
                                   const std::shared_ptr<Ledger>& ledger, bool absolute) {
  const AmbientScope scope(ledger, c.seed);
  Record record;
  RunRequest request;
  EngineModel model(c, geometry, request, nullptr, record);
  if (absolute) model.take_magnitudes();
  const auto index = static_cast<std::size_t>(layer);
  const Shape input(c.input);
  Tensors leaves;
  Tensors live;
  for (std::size_t i = 0; i < geometry.live[index].size(); ++i) {
    const Shape& shape = geometry.shape_of(geometry.live[index][i], input);
    Tensor leaf = random_tensor(c, kOperandArrays + 64 * index + i, shape, absolute);
    leaf.set_requires_grad(true);
    leaves.push_back(leaf);
    // No leaf, so that a layer may work in place.
    live.push_back(scale(leaf, 1));
  }
  std::vector<NamedValues> seen;
  Tensors roots;
  Tensors gradients;
  const Tensors outputs = model.run_alone(layer, live);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    seen.push_back({"output " + std::to_string(i), outputs[i].to_vector()});
    if (!outputs[i].requires_grad()) continue;
    roots.push_back(outputs[i]);
    gradients.push_back(
        random_tensor(c, kGradientArrays + 64 * index + i, outputs[i].shape(), absolute));
  }
  if (!roots.empty()) backward(roots, gradients);
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (!leaves[i].grad().defined()) continue;
    seen.push_back({"gradient of operand " + std::to_string(i), leaves[i].grad().to_vector()});
  }
  for (const int p : geometry.layer_parameters[index]) {
    const Tensor& g = model.parameters()[static_cast<std::size_t>(p)].grad();
    if (!g.defined()) continue;
    const ParameterInfo& info = geometry.parameters[static_cast<std::size_t>(p)];
    seen.push_back({"gradient of " + std::string(info.role), g.to_vector()});
  }
  return seen;
}

/// The multiply-adds of a layer that is a matrix product or a convolution, each of its passes.
std::int64_t products_of(const Case& c, const Geometry& geometry, int layer) {
  const auto index = static_cast<std::size_t>(layer);
  const std::int64_t kernel = c.layers[index].kernel;
  const Shape x = geometry.shape_of({layer - 1, 0}, Shape(c.input));
  const std::int64_t window = kernel > 0 ? kernel * kernel : 1;
  return geometry.outputs[index][0].elements() * x[1] * window;
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
  std::int64_t window = 1;
  std::int64_t positions = y[0];
  if (is_convolution) {
    window = spec.kernel * spec.kernel;
    positions *= y[2] * y[3];
  }
  if (what.starts_with("output")) return x[1] * window + 1;
  if (what.starts_with("gradient of operand 0")) return y[1] * window;
  if (what.starts_with("gradient of operand")) return 0;
  return positions;
}

/// What cuDNN may add to a sum of `terms` products: F(2x2, 3x3) of Winograd forms other products
/// than the direct sum, so its error is not relative to the direct sum's terms, but to the largest
/// operands (the derivation is in engine/cuda/conv2d.h). Operands and gradients are in (-1, 1).
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
  std::vector<Agreement> all;
  for (int layer = 0; layer < static_cast<int>(c.layers.size()); ++layer) {
    const auto on_host = run_alone(c, geometry, layer, host, false);
    const auto on_device = run_alone(c, geometry, layer, device, false);
    const bool products = layer_of(c.layers[static_cast<std::size_t>(layer)]).low_precision;
    std::vector<NamedValues> magnitudes;
    if (products) magnitudes = run_alone(c, geometry, layer, host, true);
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
