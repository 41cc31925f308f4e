#include "engine/kernels/elementwise.h"

#include <catch2/catch_template_test_macros.hpp>

#include "engine/cuda/testing/twin.h"

namespace rematch::cuda {
namespace {

using namespace testing;

TYPED_DEVICE_TEST_CASE("element-wise kernels give the CPU's bits on the device") {
  using T = TestType;
  for_each_layout([](std::int64_t n, std::int64_t shift) {
    const Twin<T> a(values<T>(n, 1), shift);
    const Twin<T> b(values<T>(n, 2), shift);
    const Twin<T> y(n, shift);
    REMATCH_CALL_BOTH(add<T>, n, a, b, y);
    check_alike(y);
    REMATCH_CALL_BOTH(add<T>, n, a, y, y);
    check_alike(y);
    REMATCH_CALL_BOTH(add_inplace<T>, n, a, y);
    check_alike(y);
    REMATCH_CALL_BOTH(scale_inplace<T>, n, T(0.3), y);
    check_alike(y);
    REMATCH_CALL_BOTH(scale<T>, n, a, T(0.3), y);
    check_alike(y);
    REMATCH_CALL_BOTH(fill<T>, n, T(0.3), y);
    check_alike(y);
    const DeviceArray<T> value(std::vector<T>{T(0.7)}, shift);
    const DeviceArray<T> filled(n, shift);
    fill_from(n, value.data(), filled.data());
    CHECK(holds(filled, std::vector<T>(static_cast<std::size_t>(n), T(0.7))));
  });
}

TYPED_DEVICE_TEST_CASE("arrays of unlike alignment give the same bits") {
  using T = TestType;
  const std::int64_t n = 1001;
  for (const std::int64_t shift : {1, 2, 3}) {
    const Twin<T> a(values<T>(n, 1));
    const Twin<T> b(values<T>(n, 2), shift);
    const Twin<T> y(n);
    REMATCH_CALL_BOTH(add<T>, n, a, b, y);
    check_alike(y);
  }
}

TYPED_DEVICE_TEST_CASE("sums take the CPU's order on the device", "[sums]") {
  using T = TestType;
  for_each_layout([](std::int64_t n, std::int64_t shift) {
    const Twin<T> x(values<T>(n, 3), shift);
    const Twin<T> total(1, shift);
    REMATCH_CALL_BOTH(sum<T>, n, x, total);
    check_alike(total);
  });
}

}  // namespace
}  // namespace rematch::cuda
