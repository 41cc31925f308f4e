#include "engine/kernels/activation.h"

#include <catch2/catch_template_test_macros.hpp>

#include "engine/cuda/testing/device.h"

namespace rematch::cuda {
namespace {

using testing::DeviceArray;
using testing::for_each_layout;
using testing::holds;
using testing::need_device;
using testing::values;

/// Values in (-8, 8), with both zeros among them.
template <typename T>
std::vector<T> wide_values(std::int64_t n, std::uint64_t seed) {
  std::vector<T> out = values<T>(n, seed);
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = i % 7 == 3 ? T(0) : i % 7 == 5 ? -T(0) : out[i] * T(8);
  }
  return out;
}

TEMPLATE_TEST_CASE("activations give the CPU's bits on the device", "[gpu]", float, double) {
  using T = TestType;
  need_device();
  for_each_layout([](std::int64_t n, std::int64_t shift) {
    const auto x = wide_values<T>(n, 1);
    const auto g = values<T>(n, 2);
    const DeviceArray<T> dx(x, shift);
    const DeviceArray<T> dg(g, shift);
    const auto expect = [&](const auto& on_cpu, const auto& on_device) {
      std::vector<T> want(x.size());
      on_cpu(want.data());
      const DeviceArray<T> got(n, shift);
      on_device(got.data());
      CHECK(holds(got, want));
    };
    const T slope = T(0.01);
    expect([&](T* y) { cpu::relu_forward(n, x.data(), y); },
           [&](T* y) { relu_forward(n, dx.data(), y); });
    expect([&](T* y) { cpu::relu_backward(n, g.data(), x.data(), y); },
           [&](T* y) { relu_backward(n, dg.data(), dx.data(), y); });
    expect([&](T* y) { cpu::leaky_relu_forward(n, x.data(), slope, y); },
           [&](T* y) { leaky_relu_forward(n, dx.data(), slope, y); });
    expect([&](T* y) { cpu::leaky_relu_backward(n, g.data(), x.data(), slope, y); },
           [&](T* y) { leaky_relu_backward(n, dg.data(), dx.data(), slope, y); });
    expect([&](T* y) { cpu::gelu_forward(n, x.data(), y); },
           [&](T* y) { gelu_forward(n, dx.data(), y); });
    expect([&](T* y) { cpu::gelu_backward(n, g.data(), x.data(), y); },
           [&](T* y) { gelu_backward(n, dg.data(), dx.data(), y); });
    expect([&](T* y) { cpu::silu_forward(n, x.data(), y); },
           [&](T* y) { silu_forward(n, dx.data(), y); });
    expect([&](T* y) { cpu::silu_backward(n, g.data(), x.data(), y); },
           [&](T* y) { silu_backward(n, dg.data(), dx.data(), y); });
    expect([&](T* y) { cpu::tanh_forward(n, x.data(), y); },
           [&](T* y) { tanh_forward(n, dx.data(), y); });
    expect([&](T* y) { cpu::tanh_backward(n, g.data(), x.data(), y); },
           [&](T* y) { tanh_backward(n, dg.data(), dx.data(), y); });
    expect([&](T* y) { cpu::sigmoid_forward(n, x.data(), y); },
           [&](T* y) { sigmoid_forward(n, dx.data(), y); });
    expect([&](T* y) { cpu::sigmoid_backward(n, g.data(), x.data(), y); },
           [&](T* y) { sigmoid_backward(n, dg.data(), dx.data(), y); });
  });
}

TEMPLATE_TEST_CASE("relu may write over its input on the device", "[gpu]", float, double) {
  using T = TestType;
  need_device();
  auto x = wide_values<T>(4099, 1);
  const DeviceArray<T> dx(x);
  relu_forward(4099, dx.data(), dx.data());
  cpu::relu_forward(4099, x.data(), x.data());
  CHECK(holds(dx, x));
}

TEMPLATE_TEST_CASE("softmax gives the CPU's bits on the device", "[gpu][sums]", float, double) {
  using T = TestType;
  need_device();
  for (const auto [rows, cols] : testing::kTables) {
    for (const std::int64_t shift : {0, 1}) {
      CAPTURE(rows, cols, shift);
      const std::int64_t n = rows * cols;
      const auto x = wide_values<T>(n, 1);
      const auto g = values<T>(n, 2);
      std::vector<T> y(x.size());
      std::vector<T> gx(x.size());
      cpu::softmax_forward(rows, cols, x.data(), y.data());
      cpu::softmax_backward(rows, cols, g.data(), y.data(), gx.data());
      const DeviceArray<T> dx(x, shift);
      const DeviceArray<T> dg(g, shift);
      const DeviceArray<T> dy(n, shift);
      const DeviceArray<T> dgx(n, shift);
      softmax_forward(rows, cols, dx.data(), dy.data());
      softmax_backward(rows, cols, dg.data(), dy.data(), dgx.data());
      CHECK(holds(dy, y));
      CHECK(holds(dgx, gx));
    }
  }
}

}  // namespace
}  // namespace rematch::cuda
