#include "engine/kernels/elementwise.h"

#include <catch2/catch_template_test_macros.hpp>

#include "engine/cuda/testing/device.h"

namespace rematch::cuda {
namespace {

using testing::DeviceArray;
using testing::for_each_layout;
using testing::holds;
using testing::need_device;
using testing::values;

TEMPLATE_TEST_CASE("element-wise kernels give the CPU's bits on the device", "[gpu]", float,
                   double) {
  using T = TestType;
  need_device();
  for_each_layout([](std::int64_t n, std::int64_t shift) {
    const auto a = values<T>(n, 1);
    const auto b = values<T>(n, 2);
    const DeviceArray<T> da(a, shift);
    const DeviceArray<T> db(b, shift);
    const auto expect = [&](const auto& on_cpu, const auto& on_device) {
      std::vector<T> want = b;
      on_cpu(want.data());
      const DeviceArray<T> got(b, shift);
      on_device(got.data());
      CHECK(holds(got, want));
    };
    expect([&](T* y) { cpu::add(n, a.data(), b.data(), y); },
           [&](T* y) { add(n, da.data(), db.data(), y); });
    expect([&](T* y) { cpu::add(n, a.data(), y, y); }, [&](T* y) { add(n, da.data(), y, y); });
    expect([&](T* y) { cpu::add_inplace(n, a.data(), y); },
           [&](T* y) { add_inplace(n, da.data(), y); });
    expect([&](T* y) { cpu::scale(n, a.data(), T(0.3), y); },
           [&](T* y) { scale(n, da.data(), T(0.3), y); });
    expect([&](T* y) { cpu::scale_inplace(n, T(0.3), y); },
           [&](T* y) { scale_inplace(n, T(0.3), y); });
    expect([&](T* y) { cpu::fill(n, T(0.3), y); }, [&](T* y) { fill(n, T(0.3), y); });
    const DeviceArray<T> value(std::vector<T>{T(0.7)}, shift);
    expect([&](T* y) { cpu::fill(n, T(0.7), y); }, [&](T* y) { fill_from(n, value.data(), y); });
  });
}

TEMPLATE_TEST_CASE("arrays of unlike alignment give the same bits", "[gpu]", float, double) {
  using T = TestType;
  need_device();
  const std::int64_t n = 1001;
  const auto a = values<T>(n, 1);
  const auto b = values<T>(n, 2);
  std::vector<T> want(a.size());
  cpu::add(n, a.data(), b.data(), want.data());
  for (const std::int64_t shift : {1, 2, 3}) {
    const DeviceArray<T> da(a, 0);
    const DeviceArray<T> db(b, shift);
    const DeviceArray<T> got(n, 0);
    add(n, da.data(), db.data(), got.data());
    CHECK(holds(got, want));
  }
}

TEMPLATE_TEST_CASE("sums take the CPU's order on the device", "[gpu][sums]", float, double) {
  using T = TestType;
  need_device();
  for_each_layout([](std::int64_t n, std::int64_t shift) {
    const auto x = values<T>(n, 3);
    const DeviceArray<T> dx(x, shift);
    const DeviceArray<T> total(1, shift);
    sum(n, dx.data(), total.data());
    T want = 0;
    cpu::sum(n, x.data(), &want);
    CHECK(holds(total, {want}));
  });
}

}  // namespace
}  // namespace rematch::cuda
