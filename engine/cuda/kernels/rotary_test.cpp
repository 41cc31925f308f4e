#include "engine/kernels/rotary.h"

#include <catch2/catch_template_test_macros.hpp>

#include "engine/cuda/testing/device.h"

namespace rematch::cuda {
namespace {

using testing::DeviceArray;
using testing::holds;
using testing::need_device;
using testing::values;

TEMPLATE_TEST_CASE("rotary positions give the CPU's bits on the device", "[gpu]", float, double) {
  using T = TestType;
  need_device();
  for (const math::RotaryShape& s :
       {math::RotaryShape{.batch = 2, .positions = 3, .width = 4, .features = 4, .heads = 2},
        math::RotaryShape{.batch = 1, .positions = 700, .width = 9, .features = 6, .heads = 1},
        math::RotaryShape{.batch = 3, .positions = 65, .width = 64, .features = 48, .heads = 3}}) {
    for (const double direction : {1.0, -1.0}) {
      CAPTURE(s.positions, direction);
      const auto x = values<T>(s.batch * s.positions * s.width, 1);
      std::vector<T> y(x.size());
      cpu::rotary(s, direction, x.data(), y.data());
      const DeviceArray<T> dx(x);
      const DeviceArray<T> dy(static_cast<std::int64_t>(x.size()));
      rotary(s, direction, dx.data(), dy.data());
      CHECK(holds(dy, y));
    }
  }
}

}  // namespace
}  // namespace rematch::cuda
