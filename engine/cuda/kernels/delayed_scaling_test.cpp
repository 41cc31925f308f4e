#include "engine/kernels/delayed_scaling.h"

#include <catch2/catch_template_test_macros.hpp>
#include <limits>

#include "engine/cuda/testing/twin.h"

namespace rematch::cuda {
namespace {

using namespace testing;

TYPED_DEVICE_TEST_CASE("delayed scaling gives the CPU's bits on the device", "[sums]") {
  using T = TestType;
  for (const std::int64_t n : {1, 15, 31, 1023, 1025, 70'000}) {
    CAPTURE(n);
    auto x = values<T>(n, 1);
    if (n > 1) x[static_cast<std::size_t>(n / 2)] = std::numeric_limits<T>::quiet_NaN();
    for (const std::int64_t shift : {0, 1}) {
      CAPTURE(shift);
      const Twin<T> input(x, shift);
      const Twin<T> scale(std::vector<T>{T(0.3)});
      const Twin<T> y(n);
      REMATCH_CALL_BOTH(divide_by<T>, n, input, scale, y);
      REMATCH_CALL_BOTH(average_magnitude<T>, n, input, scale);
      check_alike(y, scale);
    }
  }
}

TYPED_DEVICE_TEST_CASE("rounding to float8 gives the CPU's bits on the device") {
  using T = TestType;
  for (const std::int64_t n : {1, 31, 1025, 70'000}) {
    for (const T first : {T(0), T(3)}) {
      CAPTURE(n, first);
      auto x = values<T>(n, 1);
      if (n > 2) {
        x[0] = std::numeric_limits<T>::quiet_NaN();
        x[1] = std::numeric_limits<T>::infinity();
        x[2] = T(-0.0);
      }
      for (const std::int64_t shift : {0, 1}) {
        CAPTURE(shift);
        const Twin<T> input(x, shift);
        const Twin<T> history(std::vector<T>{first, T(0), T(0), T(0)});
        const Twin<T> y(n);
        REMATCH_CALL_BOTH(round_to_float8<T>, n, input, history, y);
        REMATCH_CALL_BOTH(remember_magnitude<T>, n, input, history);
        check_alike(y, history);
      }
    }
  }
}

}  // namespace
}  // namespace rematch::cuda
