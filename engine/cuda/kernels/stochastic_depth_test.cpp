#include "engine/kernels/stochastic_depth.h"

#include <catch2/catch_template_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "engine/cuda/testing/device.h"

namespace rematch::cuda {
namespace {

using testing::DeviceArray;
using testing::holds;
using testing::need_device;
using testing::values;

TEMPLATE_TEST_CASE("a branch that samples skip gives the CPU's bits on the device", "[gpu][sums]",
                   float, double) {
  using T = TestType;
  need_device();
  for (const std::int64_t samples : {0, 1, 31}) {
    for (const std::int64_t rows : {1, 3}) {
      for (const std::int64_t features : {1, 7, 40}) {
        for (const bool draws : {false, true}) {
          CAPTURE(samples, rows, features, draws);
          const math::DepthShape s{samples, rows, features};
          const std::int64_t n = s.rows() * features;
          const auto x = values<T>(n, 1);
          const auto w = values<T>(features * features, 2);
          const auto gy = values<T>(n, 3);
          std::vector<T> factors(static_cast<std::size_t>(samples));
          for (std::size_t i = 0; i < factors.size(); ++i) factors[i] = i % 3 == 1 ? T(0) : T(1.25);
          std::vector<T> y(x.size());
          std::vector<T> gx(x.size());
          std::vector<T> gw(w.size());
          const T* const given = draws ? factors.data() : nullptr;
          cpu::stochastic_depth_forward(s, x.data(), w.data(), given, y.data());
          cpu::stochastic_depth_backward(s, gy.data(), x.data(), w.data(), given, gx.data(),
                                         gw.data());
          const DeviceArray<T> dx(x);
          const DeviceArray<T> dw(w);
          const DeviceArray<T> dgy(gy);
          const DeviceArray<T> dfactors(factors);
          const DeviceArray<T> dy(n);
          const DeviceArray<T> dgx(n);
          const DeviceArray<T> dgw(features * features);
          const T* const on_device = draws ? dfactors.data() : nullptr;
          stochastic_depth_forward(s, dx.data(), dw.data(), on_device, dy.data());
          stochastic_depth_backward(s, dgy.data(), dx.data(), dw.data(), on_device, dgx.data(),
                                    dgw.data());
          CHECK(holds(dy, y));
          CHECK(holds(dgx, gx));
          CHECK(holds(dgw, gw));
        }
      }
    }
  }
}

TEMPLATE_TEST_CASE("the device sends the samples around a branch that the CPU does", "[gpu]", float,
                   double) {
  using T = TestType;
  need_device();
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
      std::vector<T> factors(static_cast<std::size_t>(samples));
      cpu::exit_factors(s, x.data(), factors.data());
      const DeviceArray<T> dx(x);
      const DeviceArray<T> dfactors(samples);
      exit_factors(s, dx.data(), dfactors.data());
      CHECK(holds(dfactors, factors));
    }
  }
}

}  // namespace
}  // namespace rematch::cuda
