#include "engine/kernels/embedding.h"

#include <catch2/catch_template_test_macros.hpp>
#include <cmath>

#include "engine/cuda/testing/twin.h"

namespace rematch::cuda {
namespace {

using namespace testing;

TYPED_DEVICE_TEST_CASE("embedding gives the CPU's bits on the device", "[sums]") {
  using T = TestType;
  for (const std::int64_t n : {1, 31, 1025}) {
    for (const std::int64_t rows : {1, 3, 300}) {
      for (const std::int64_t features : {1, 33, 260}) {
        CAPTURE(n, rows, features);
        std::vector<std::int32_t> tokens;
        for (std::int64_t i = 0; i < n; ++i) {
          tokens.push_back(static_cast<std::int32_t>(i * i % rows));
        }
        const Twin<std::int32_t> t(tokens);
        const Twin<T> weight(values<T>(rows * features, 1));
        const Twin<T> gy(values<T>(n * features, 2));
        const Twin<T> y(n * features);
        const Twin<T> gw(rows * features);
        REMATCH_CALL_BOTH(rows_of_tokens<T>, n, rows, features, t, weight, y);
        REMATCH_CALL_BOTH(sum_rows_of_tokens<T>, n, rows, features, t, gy, gw);
        check_alike(y, gw);
      }
    }
  }
}

DEVICE_TEST_CASE("a token that has no row is NaN on the device, and adds to no sum") {
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
