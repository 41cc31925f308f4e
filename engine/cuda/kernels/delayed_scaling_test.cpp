#include "engine/kernels/delayed_scaling.h"

#include <catch2/catch_template_test_macros.hpp>
#include <limits>

#include "engine/cuda/testing/device.h"

namespace rematch::cuda {
namespace {

using testing::DeviceArray;
using testing::holds;
using testing::need_device;
using testing::values;

TEMPLATE_TEST_CASE("delayed scaling gives the CPU's bits on the device", "[gpu][sums]", float,
                   double) {
  using T = TestType;
  need_device();
  for (const std::int64_t n : {1, 15, 31, 1023, 1025, 70'000}) {
    CAPTURE(n);
    auto x = values<T>(n, 1);
    if (n > 1) x[static_cast<std::size_t>(n / 2)] = std::numeric_limits<T>::quiet_NaN();
    std::vector<T> scale{T(0.3)};
    std::vector<T> y(x.size());
    cpu::divide_by(n, x.data(), scale.data(), y.data());
    const DeviceArray<T> dx(x);
    const DeviceArray<T> dscale(scale);
    const DeviceArray<T> dy(n);
    divide_by(n, dx.data(), dscale.data(), dy.data());
    cpu::average_magnitude(n, x.data(), scale.data());
    average_magnitude(n, dx.data(), dscale.data());
    CHECK(holds(dy, y));
    CHECK(holds(dscale, scale));
  }
}

TEMPLATE_TEST_CASE("rounding to float8 gives the CPU's bits on the device", "[gpu]", float,
                   double) {
  using T = TestType;
  need_device();
  for (const std::int64_t n : {1, 31, 1025, 70'000}) {
    for (const T first : {T(0), T(3)}) {
      CAPTURE(n, first);
      auto x = values<T>(n, 1);
      if (n > 2) {
        x[0] = std::numeric_limits<T>::quiet_NaN();
        x[1] = std::numeric_limits<T>::infinity();
        x[2] = T(-0.0);
      }
      std::vector<T> history{first, T(0), T(0), T(0)};
      std::vector<T> y(x.size());
      cpu::round_to_float8(n, x.data(), history.data(), y.data());
      const DeviceArray<T> dx(x);
      const DeviceArray<T> dhistory(history);
      const DeviceArray<T> dy(n);
      round_to_float8(n, dx.data(), dhistory.data(), dy.data());
      cpu::remember_magnitude(n, x.data(), history.data());
      remember_magnitude(n, dx.data(), dhistory.data());
      CHECK(holds(dy, y));
      CHECK(holds(dhistory, history));
    }
  }
}

}  // namespace
}  // namespace rematch::cuda
