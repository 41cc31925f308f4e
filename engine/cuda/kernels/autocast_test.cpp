// linear and conv2d under autocast on the device, and their checkpoints.
#include "engine/autograd/autocast.h"

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <functional>
#include <optional>

#include "engine/ambient/ambient_scope.h"
#include "engine/autograd/backward.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/cuda/testing/device.h"
#include "engine/cuda/testing/reference.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/cast.h"
#include "engine/ops/conv2d.h"
#include "engine/ops/dropout.h"
#include "engine/ops/linear.h"
#include "engine/ops/view.h"

namespace rematch::cuda {
namespace {

using cpu::testing::product_bound;
using math::BFloat16;
using namespace testing;

using Values = std::vector<double>;
using Make = std::vector<float> (*)(std::int64_t, std::uint64_t);

std::shared_ptr<Ledger> ledger_of(Device device) {
  return device == Device::cuda ? std::make_shared<Ledger>(device_memory())
                                : std::make_shared<Ledger>();
}

/// A layer, and how many products make up an element of y, gx, gw and gb.
struct CastLayer {
  std::function<Tensor(const Tensor&, const Tensor&, const Tensor&)> op;
  Shape x;
  Shape w;
  Shape y;
  std::array<std::int64_t, 4> terms;
  bool convolution = false;
};

CastLayer linear_layer(std::int64_t n, std::int64_t k, std::int64_t m) {
  return {[](const Tensor& x, const Tensor& w, const Tensor& b) { return linear(x, w, b); },
          {n, k},
          {m, k},
          {n, m},
          {k, m, n, n}};
}

CastLayer conv2d_layer(std::int64_t n, std::int64_t c, std::int64_t side, std::int64_t out_c) {
  return {[](const Tensor& x, const Tensor& w, const Tensor& b) { return conv2d(x, w, b, 1, 1); },
          {n, c, side, side},
          {out_c, c, 3, 3},
          {n, out_c, side, side},
          {9 * c, 9 * out_c, n * side * side, n * side * side},
          true};
}

/// The emulated cuDNN refuses paddings that are wider than the kernel.
CastLayer without_plan() {
  return {[](const Tensor& x, const Tensor& w, const Tensor& b) { return conv2d(x, w, b, 1, 2); },
          {2, 3, 5, 5},
          {4, 3, 1, 1},
          {2, 4, 9, 9},
          {3, 4, 162, 162},
          true};
}

std::vector<CastLayer> layers() {
  return {without_plan(),           linear_layer(1, 1, 1),       linear_layer(5, 17, 4),
          linear_layer(64, 64, 64), linear_layer(33, 90, 259),   conv2d_layer(1, 1, 4, 1),
          conv2d_layer(3, 5, 7, 6), conv2d_layer(16, 16, 16, 32)};
}

/// y, gx, gw and gb of a layer.
std::array<Values, 4> run(Device device, const CastLayer& layer, bool autocast, const Make& make) {
  const AmbientScope scope(ledger_of(device));
  const auto leaf = [&](const Shape& shape, std::uint64_t seed) {
    const std::vector<float> v = make(shape.elements(), seed);
    Values in(v.begin(), v.end());
    // Rounds as autocast does with its operands, so that the two sides are given the same.
    for (double& value : in) {
      if (!autocast) value = static_cast<double>(BFloat16(value));
    }
    return Tensor::from(in, shape);
  };
  const Tensor x = leaf(layer.x, 1).set_requires_grad(true);
  const Tensor w = leaf(layer.w, 2).set_requires_grad(true);
  const Tensor b = leaf({layer.w[0]}, 3).set_requires_grad(true);
  const Tensor gy = leaf(layer.y, 4);
  const AutocastScope on(autocast);
  const Tensor y = layer.op(x, w, b);
  backward(std::array{y}, std::array{cast(gy, y.dtype())});
  return {y.to_vector(), x.grad().to_vector(), w.grad().to_vector(), b.grad().to_vector()};
}

/// How far float32 sums of `terms` products on the device and on the CPU may be apart
/// (linear.h, conv2d.h).
double float32_bound(const CastLayer& layer, std::int64_t terms) {
  const auto n = static_cast<double>(terms + 2);
  return product_bound<float>(terms) +
         (layer.convolution ? n * (n + 110) * unit<float>() : product_bound<float>(terms));
}

}  // namespace

DEVICE_TEST_CASE("under autocast the device gives the roundings of sums that float32 allows") {
  const DirectUpTo limit(GENERATE(std::int64_t{0}, kAlways));
  for (const CastLayer& layer : layers()) {
    CAPTURE(to_string(layer.x), to_string(layer.w));
    const std::array<Values, 4> got = run(Device::cuda, layer, true, values<float>);
    // In float32, so not yet rounded. Rounding is monotone: what lies between two values is rounded
    // to what lies between their roundings.
    const std::array<Values, 4> sums = run(Device::cpu, layer, false, values<float>);
    for (std::size_t i = 0; i < 4; ++i) {
      CAPTURE(i);
      REQUIRE(got[i].size() == sums[i].size());
      const double bound = float32_bound(layer, layer.terms[i]);
      std::int64_t outside = 0;
      for (std::size_t e = 0; e < got[i].size(); ++e) {
        const auto low = static_cast<double>(BFloat16(sums[i][e] - bound));
        const auto high = static_cast<double>(BFloat16(sums[i][e] + bound));
        outside += !(low <= got[i][e] && got[i][e] <= high);
      }
      CHECK(outside == 0);
    }
  }
}

DEVICE_TEST_CASE("under autocast libraries get bfloat16 operands, and small products none") {
  testing::need_kept_blocks();
  for (const CastLayer& layer : {linear_layer(33, 90, 259), conv2d_layer(16, 16, 16, 32)}) {
    CAPTURE(to_string(layer.x));
    const Backend library = layer.convolution ? Backend::cudnn : Backend::cublaslt;
    const auto calls_of = [&](std::int64_t direct) {
      const DirectUpTo limit(direct);
      (void)run(Device::cuda, layer, true, values<float>);
      const std::int64_t calls = backend_calls(library);
      const std::int64_t kernels = backend_calls(Backend::kernels);
      (void)run(Device::cuda, layer, true, values<float>);
      return std::pair(backend_calls(library) - calls, backend_calls(Backend::kernels) - kernels);
    };
    const auto [large_calls, large_kernels] = calls_of(0);
    const auto [small_calls, small_kernels] = calls_of(kAlways);
    CHECK(large_calls == 3);
    CHECK(small_calls == 0);
    // Small: x, w and b are widened, w and x once more for the gradients, and y, gx and gw rounded.
    // Those of x and b are few elements and next to each other, and so one launch.
    const std::int64_t products = 3;
    CHECK(small_kernels - large_kernels == 7 + products);
  }
}

DEVICE_TEST_CASE("under autocast small products have the CPU's bits") {
  for (const CastLayer& layer : layers()) {
    CAPTURE(to_string(layer.x), to_string(layer.w));
    if (layer.convolution) continue;
    const DirectUpTo limit(kAlways);
    CHECK(run(Device::cuda, layer, true, values<float>) ==
          run(Device::cpu, layer, true, values<float>));
  }
}

DEVICE_TEST_CASE("under autocast sums that are exact have the CPU's values") {
  const DirectUpTo limit(GENERATE(std::int64_t{0}, kAlways));
  for (const CastLayer& layer : layers()) {
    CAPTURE(to_string(layer.x), to_string(layer.w));
    CHECK(run(Device::cuda, layer, true, testing::quarters<float>) ==
          run(Device::cpu, layer, true, testing::quarters<float>));
  }
}

DEVICE_TEST_CASE("a checkpointed step under autocast on the device is a rematch of the plain one") {
  const bool reentrant = GENERATE(false, true);
  const bool cache = GENERATE(false, true);
  const bool inside = GENERATE(false, true);
  const auto step = [&](bool checkpointed) {
    const AmbientScope fresh(ledger_of(Device::cuda), 7);
    const auto leaf = [](const Shape& shape, std::uint64_t seed) {
      const std::vector<float> v = values<float>(shape.elements(), seed);
      return Tensor::from(Values(v.begin(), v.end()), shape).set_requires_grad(true);
    };
    const Tensor x = leaf({4, 2, 4, 4}, 1);
    const Tensor filter = leaf({2, 2, 3, 3}, 2);
    const Tensor w = leaf({32, 32}, 3);
    const Function f = [&](const Tensors& in) -> Tensors {
      const Tensor h = flatten(relu(conv2d(in[0], filter, {}, 1, 1)));
      return {linear(dropout(tanh(linear(h, w)), 0.5), w)};
    };
    CheckpointOptions options;
    options.reentrant = reentrant;
    std::optional<AutocastScope> scope(std::in_place, true, cache);
    const Tensor y = (checkpointed ? checkpoint(f, {x}, options) : f({x}))[0];
    CHECK(y.dtype() == DType::bfloat16);
    const Tensor loss = sum(mul(y, y));
    if (!inside) scope.reset();
    backward(loss);
    return std::array<Values, 4>{y.to_vector(), x.grad().to_vector(), filter.grad().to_vector(),
                                 w.grad().to_vector()};
  };
  CHECK(step(true) == step(false));
}

DEVICE_TEST_CASE("bfloat16 gradients are added up on the device as on the CPU") {
  const auto gradient = [](Device device) {
    const AmbientScope fresh(ledger_of(device));
    const std::vector<float> v = values<float>(1000, 1);
    const Tensor g = Tensor::from(Values(v.begin(), v.end()), {1000});
    const Tensor leaf = Tensor::full({1000}, DType::bfloat16, 1.0 / 3).set_requires_grad(true);
    for (int i = 0; i < 2; ++i) {
      const Tensor y = scale(leaf, 0.3);
      const Tensor z = mul(leaf, leaf);
      backward(std::array{y, z}, std::array{g, g});
    }
    const Tensor one = Tensor::full({1}, DType::bfloat16, 2).set_requires_grad(true);
    backward(one);
    CHECK(one.grad().item() == 1);
    return leaf.grad().to_vector();
  };
  CHECK(gradient(Device::cuda) == gradient(Device::cpu));
}

}  // namespace rematch::cuda
