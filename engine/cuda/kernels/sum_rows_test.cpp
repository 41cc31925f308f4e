#include "engine/kernels/linear.h"

#include <catch2/catch_template_test_macros.hpp>

#include "engine/cuda/testing/device.h"

namespace rematch::cuda {
namespace {

using testing::DeviceArray;
using testing::holds;
using testing::need_device;
using testing::values;

TEMPLATE_TEST_CASE("column sums on the device have the CPU's bits", "[gpu][sums]", float, double) {
  using T = TestType;
  need_device();
  for (const auto [n, m] : testing::kTables) {
    CAPTURE(n, m);
    const auto gy = values<T>(n * m, 1);
    std::vector<T> want(static_cast<std::size_t>(m));
    cpu::sum_rows(gy.data(), want.data(), n, m);
    const DeviceArray<T> dgy(gy);
    const DeviceArray<T> got(m);
    sum_rows(dgy.data(), got.data(), n, m);
    CHECK(holds(got, want));
  }
}

TEST_CASE("column sums of small integers are exact in every order", "[gpu][sums]") {
  need_device();
  const std::int64_t n = 70000;
  std::vector<float> gy;
  for (std::int64_t i = 0; i < n * 3; ++i) gy.push_back(static_cast<float>(i % 5) - 2.0F);
  std::vector<float> want(3);
  cpu::sum_rows(gy.data(), want.data(), n, 3);
  const DeviceArray<float> dgy(gy, 1);
  const DeviceArray<float> got(3, 1);
  sum_rows(dgy.data(), got.data(), n, 3);
  CHECK(holds(got, want));
}

}  // namespace
}  // namespace rematch::cuda
