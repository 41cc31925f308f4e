#include "engine/kernels/activation.h"

#include <catch2/catch_template_test_macros.hpp>

#include "engine/cuda/testing/twin.h"

namespace rematch::cuda {
namespace {

using namespace testing;

/// Values in (-8, 8), with both zeros among them.
template <typename T>
std::vector<T> wide_values(std::int64_t n, std::uint64_t seed) {
  std::vector<T> out = values<T>(n, seed);
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = i % 7 == 3 ? T(0) : i % 7 == 5 ? -T(0) : out[i] * T(8);
  }
  return out;
}

TYPED_DEVICE_TEST_CASE("activations give the CPU's bits on the device") {
  using T = TestType;
  testing::for_each_layout([](std::int64_t n, std::int64_t shift) {
    const Twin<T> x(wide_values<T>(n, 1), shift);
    const Twin<T> g(values<T>(n, 2), shift);
    const Twin<T> y(n, shift);
    const T slope = T(0.01);
    REMATCH_CALL_BOTH(leaky_relu_forward<T>, n, x, slope, y);
    check_alike(y);
    REMATCH_CALL_BOTH(leaky_relu_backward<T>, n, g, x, slope, y);
    check_alike(y);
#define REMATCH_CHECK(f)                          \
  REMATCH_CALL_BOTH(f##_forward<T>, n, x, y);     \
  check_alike(y);                                 \
  REMATCH_CALL_BOTH(f##_backward<T>, n, g, x, y); \
  check_alike(y);
    REMATCH_POINTWISE_ACTIVATIONS(REMATCH_CHECK)
    // Over its input.
    REMATCH_CALL_BOTH(relu_forward<T>, n, x, x);
    check_alike(x);
  });
}

TYPED_DEVICE_TEST_CASE("softmax gives the CPU's bits on the device", "[sums]") {
  using T = TestType;
  for (const auto [rows, cols] : testing::kTables) {
    for (const std::int64_t shift : {0, 1}) {
      CAPTURE(rows, cols, shift);
      const std::int64_t n = rows * cols;
      const Twin<T> x(wide_values<T>(n, 1), shift);
      const Twin<T> g(values<T>(n, 2), shift);
      const Twin<T> y(n, shift);
      const Twin<T> gx(n, shift);
      REMATCH_CALL_BOTH(softmax_forward<T>, rows, cols, x, y);
      REMATCH_CALL_BOTH(softmax_backward<T>, rows, cols, g, y, gx);
      check_alike(y, gx);
    }
  }
}

}  // namespace
}  // namespace rematch::cuda
