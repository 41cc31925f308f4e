#include "engine/kernels/stochastic_depth.h"

#include <catch2/catch_template_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "engine/cuda/testing/twin.h"

namespace rematch::cuda {
namespace {

using namespace testing;

TYPED_DEVICE_TEST_CASE("a branch that samples skip gives the CPU's bits on the device", "[sums]") {
  using T = TestType;
  for (const std::int64_t samples : {0, 1, 31}) {
    for (const std::int64_t rows : {1, 3}) {
      for (const std::int64_t features : {1, 7, 40}) {
        for (const bool draws : {false, true}) {
          CAPTURE(samples, rows, features, draws);
          const math::DepthShape s{samples, rows, features};
          const std::int64_t n = s.rows() * features;
          const Twin<T> x(values<T>(n, 1));
          const Twin<T> w(values<T>(features * features, 2));
          const Twin<T> gy(values<T>(n, 3));
          std::vector<T> of_samples(static_cast<std::size_t>(samples), T(1.25));
          for (std::size_t i = 1; i < of_samples.size(); i += 3) of_samples[i] = T(0);
          const Twin<T> factors(of_samples);
          const Twin<T> y(n);
          const Twin<T> gx(n);
          const Twin<T> gw(features * features);
          const auto given = null_unless(draws, factors);
          REMATCH_CALL_BOTH(stochastic_depth_forward<T>, s, x, w, given, y);
          REMATCH_CALL_BOTH(stochastic_depth_backward<T>, s, gy, x, w, given, gx, gw);
          check_alike(y, gx, gw);
        }
      }
    }
  }
}

TYPED_DEVICE_TEST_CASE("the device sends the samples around a branch that the CPU does") {
  using T = TestType;
  for (const std::int64_t samples : {0, 1, 300}) {
    for (const std::int64_t features : {0, 1, 3}) {
      CAPTURE(samples, features);
      const math::DepthShape s{samples, 2, features};
      auto x = values<T>(s.rows() * features, 1);
      if (samples > 2 && features > 0) {
        x[0] = std::numeric_limits<T>::quiet_NaN();
        x[static_cast<std::size_t>(2 * features)] = T(-0.0);
        x[static_cast<std::size_t>(4 * features)] = std::numeric_limits<T>::denorm_min();
      }
      const Twin<T> input(x);
      const Twin<T> factors(samples);
      REMATCH_CALL_BOTH(exit_factors<T>, s, input, factors);
      check_alike(factors);
    }
  }
}

}  // namespace
}  // namespace rematch::cuda
