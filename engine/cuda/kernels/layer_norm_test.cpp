#include "engine/kernels/layer_norm.h"

#include <catch2/catch_template_test_macros.hpp>

#include "engine/cuda/testing/twin.h"

namespace rematch::cuda {
namespace {

using namespace testing;

TYPED_DEVICE_TEST_CASE("layer norm gives the CPU's bits on the device", "[sums]") {
  using T = TestType;
  for (const auto [rows, cols] : testing::kTables) {
    for (const bool parameters : {true, false}) {
      // RMS norm has none.
      for (const bool means : {true, false}) {
        CAPTURE(rows, cols, parameters, means);
        const std::int64_t n = rows * cols;
        const Twin<T> x(values<T>(n, 1));
        const Twin<T> gy(values<T>(n, 2));
        const Twin<T> w(values<T>(cols, 3));
        const Twin<T> b(values<T>(cols, 4));
        const Twin<T> y(n);
        const Twin<T> mean(rows);
        const Twin<T> rstd(rows);
        const Twin<T> gx(n);
        const Twin<T> gw(cols);
        const Twin<T> gb(cols);
        const auto wp = null_unless(parameters, w);
        const auto mp = null_unless(means, mean);
        REMATCH_CALL_BOTH(layer_norm_forward<T>, rows, cols, x, wp, null_unless(parameters, b),
                          T(0.125), y, mp, rstd);
        REMATCH_CALL_BOTH(layer_norm_backward<T>, rows, cols, gy, x, mp, rstd, wp, gx, gw, gb);
        const Twin<T> alone(cols);
        REMATCH_CALL_BOTH(layer_norm_backward<T>, rows, cols, gy, x, mp, rstd, wp, nullptr, nullptr,
                          alone);
        CHECK(testing::same_bits(alone.host(), gb.host()));
        check_alike(y, rstd, gx, gw, gb, alone);
        if (means) check_alike(mean);
      }
    }
  }
}

}  // namespace
}  // namespace rematch::cuda
