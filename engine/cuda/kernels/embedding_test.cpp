#include "engine/kernels/embedding.h"

#include <catch2/catch_template_test_macros.hpp>
#include <cmath>

#include "engine/cuda/testing/device.h"

namespace rematch::cuda {
namespace {

using testing::DeviceArray;
using testing::holds;
using testing::need_device;
using testing::values;

TEMPLATE_TEST_CASE("embedding gives the CPU's bits on the device", "[gpu][sums]", float, double) {
  using T = TestType;
  need_device();
  for (const std::int64_t n : {1, 31, 1025}) {
    for (const std::int64_t rows : {1, 3, 300}) {
      for (const std::int64_t features : {1, 33, 260}) {
        CAPTURE(n, rows, features);
        std::vector<std::int32_t> tokens;
        for (std::int64_t i = 0; i < n; ++i) {
          tokens.push_back(static_cast<std::int32_t>(i * i % rows));
        }
        const auto weight = values<T>(rows * features, 1);
        const auto gy = values<T>(n * features, 2);
        std::vector<T> y(gy.size());
        std::vector<T> gw(weight.size());
        cpu::rows_of_tokens(n, rows, features, tokens.data(), weight.data(), y.data());
        cpu::sum_rows_of_tokens(n, rows, features, tokens.data(), gy.data(), gw.data());
        const DeviceArray<std::int32_t> dtokens(tokens);
        const DeviceArray<T> dweight(weight);
        const DeviceArray<T> dgy(gy);
        const DeviceArray<T> dy(n * features);
        const DeviceArray<T> dgw(rows * features);
        rows_of_tokens(n, rows, features, dtokens.data(), dweight.data(), dy.data());
        sum_rows_of_tokens(n, rows, features, dtokens.data(), dgy.data(), dgw.data());
        CHECK(holds(dy, y));
        CHECK(holds(dgw, gw));
      }
    }
  }
}

TEST_CASE("a token that has no row is NaN on the device, and adds to no sum", "[gpu]") {
  need_device();
  const std::vector<std::int32_t> tokens{1, -1, 2};
  const DeviceArray<std::int32_t> dtokens(tokens);
  const DeviceArray<float> weight(std::vector<float>{3, 4});
  const DeviceArray<float> y(3);
  rows_of_tokens(3, 2, 1, dtokens.data(), weight.data(), y.data());
  const std::vector<float> seen = y.host();
  CHECK(seen[0] == 4);
  CHECK(std::isnan(seen[1]));
  CHECK(std::isnan(seen[2]));
  const DeviceArray<float> sums(2);
  sum_rows_of_tokens(3, 2, 1, dtokens.data(), y.data(), sums.data());
  CHECK(holds(sums, std::vector<float>{0, 4}));
}

}  // namespace
}  // namespace rematch::cuda
