#include "engine/kernels/linear.h"

#include <catch2/catch_template_test_macros.hpp>

#include "engine/cuda/testing/twin.h"

namespace rematch::cuda {
namespace {

using namespace testing;

TYPED_DEVICE_TEST_CASE("column sums on the device have the CPU's bits", "[sums]") {
  using T = TestType;
  for (const auto [n, m] : testing::kTables) {
    CAPTURE(n, m);
    const Twin<T> gy(values<T>(n * m, 1));
    const Twin<T> sums(m);
    REMATCH_CALL_BOTH(sum_rows<T>, gy, sums, n, m);
    check_alike(sums);
  }
}

DEVICE_TEST_CASE("column sums of small integers are exact in every order", "[sums]") {
  const std::int64_t n = 70000;
  std::vector<float> integers;
  for (std::int64_t i = 0; i < n * 3; ++i) integers.push_back(static_cast<float>(i % 5) - 2.0F);
  const Twin<float> gy(integers, 1);
  const Twin<float> sums(3, 1);
  REMATCH_CALL_BOTH(sum_rows<float>, gy, sums, n, 3);
  check_alike(sums);
}

}  // namespace
}  // namespace rematch::cuda
