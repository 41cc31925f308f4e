#include "engine/cuda/optimizer.h"

#include <catch2/catch_template_test_macros.hpp>

#include "engine/cpu/optimizer.h"
#include "engine/cuda/testing/device.h"

namespace rematch::cuda {
namespace {

using testing::DeviceArray;
using testing::for_each_layout;
using testing::holds;
using testing::need_device;
using testing::values;

TEMPLATE_TEST_CASE("optimizer steps give the CPU's bits on the device", "[gpu]", float, double) {
  using T = TestType;
  need_device();
  for_each_layout([](std::int64_t n, std::int64_t shift) {
    const auto g = values<T>(n, 1);
    auto w = values<T>(n, 2);
    std::vector<T> first(w.size());
    std::vector<T> second(w.size());
    const DeviceArray<T> dg(g, shift);
    const DeviceArray<T> dw(w, shift);
    const DeviceArray<T> dfirst(first, shift);
    const DeviceArray<T> dsecond(second, shift);

    cpu::sgd_step<T>(n, T(0.1), T(0), true, g.data(), nullptr, w.data());
    sgd_step<T>(n, T(0.1), T(0), true, dg.data(), nullptr, dw.data());
    CHECK(holds(dw, w));
    for (const bool start : {true, false, false}) {
      cpu::sgd_step(n, T(0.1), T(0.9), start, g.data(), first.data(), w.data());
      sgd_step(n, T(0.1), T(0.9), start, dg.data(), dfirst.data(), dw.data());
      CHECK(holds(dw, w));
      CHECK(holds(dfirst, first));
    }
    for (std::int64_t t = 1; t <= 3; ++t) {
      cpu::adam_step(n, 1e-3, 0.9, 0.999, 1e-8, t, g.data(), first.data(), second.data(), w.data());
      adam_step(n, 1e-3, 0.9, 0.999, 1e-8, t, dg.data(), dfirst.data(), dsecond.data(), dw.data());
      CHECK(holds(dw, w));
      CHECK(holds(dfirst, first));
      CHECK(holds(dsecond, second));
    }
  });
}

}  // namespace
}  // namespace rematch::cuda
