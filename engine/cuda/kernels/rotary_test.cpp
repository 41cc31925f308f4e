#include "engine/kernels/rotary.h"

#include <catch2/catch_template_test_macros.hpp>

#include "engine/cuda/testing/twin.h"

namespace rematch::cuda {
namespace {

using namespace testing;

TYPED_DEVICE_TEST_CASE("rotary positions give the CPU's bits on the device") {
  using T = TestType;
  for (const math::RotaryShape& s :
       {math::RotaryShape{.batch = 2, .positions = 3, .width = 4, .features = 4, .heads = 2},
        math::RotaryShape{.batch = 1, .positions = 700, .width = 9, .features = 6, .heads = 1},
        math::RotaryShape{.batch = 3, .positions = 65, .width = 64, .features = 48, .heads = 3}}) {
    for (const double direction : {1.0, -1.0}) {
      CAPTURE(s.positions, direction);
      const std::int64_t n = s.batch * s.positions * s.width;
      const Twin<T> x(values<T>(n, 1));
      const Twin<T> y(n);
      REMATCH_CALL_BOTH(rotary<T>, s, direction, x, y);
      check_alike(y);
    }
  }
}

}  // namespace
}  // namespace rematch::cuda
