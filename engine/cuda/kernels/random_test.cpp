#include "engine/kernels/random.h"

#include <catch2/catch_template_test_macros.hpp>

#include "engine/cuda/testing/device.h"

namespace rematch::cuda {
namespace {

using testing::DeviceArray;
using testing::holds;
using testing::need_device;
using testing::values;

constexpr std::uint64_t kSeed = 0x123456789abcdefULL;
constexpr std::uint64_t kSubsequence = 0x1500000003ULL;
constexpr std::int64_t kSizes[] = {0, 1, 2, 3, 4, 5, 31, 257, 1000, 4099, 100003};
// Every position in a block, and across the carry of a block's low word.
constexpr std::uint64_t kOffsets[] = {0, 1, 2, 3, 1021, (std::uint64_t{1} << 34) - 6};

template <typename Check>
void for_each_draw(const Check& check_draw) {
  for (const std::int64_t n : kSizes) {
    for (const std::uint64_t offset : kOffsets) {
      for (const std::int64_t shift : {0, 1, 2, 3}) {
        CAPTURE(n, offset, shift);
        check_draw(n, offset, shift);
      }
    }
  }
}

TEMPLATE_TEST_CASE("dropout drops the same elements on the device as on the CPU", "[gpu]", float,
                   double) {
  using T = TestType;
  need_device();
  for (const double p : {0.0, 0.3, 0.5, 1.0}) {
    for_each_draw([=](std::int64_t n, std::uint64_t offset, std::int64_t shift) {
      const auto x = values<T>(n, 1);
      std::vector<std::uint8_t> mask(x.size());
      std::vector<T> y(x.size());
      std::vector<T> gx(x.size());
      cpu::dropout_forward(n, x.data(), p, kSeed, kSubsequence, offset, mask.data(), y.data());
      cpu::dropout_backward(n, x.data(), mask.data(), p, gx.data());
      const DeviceArray<T> dx(x, shift);
      const DeviceArray<std::uint8_t> dmask(n, shift);
      const DeviceArray<T> dy(n, shift);
      const DeviceArray<T> dgx(n, shift);
      dropout_forward(n, dx.data(), p, kSeed, kSubsequence, offset, dmask.data(), dy.data());
      dropout_backward(n, dx.data(), dmask.data(), p, dgx.data());
      CHECK(holds(dmask, mask));
      CHECK(holds(dy, y));
      CHECK(holds(dgx, gx));
    });
  }
}

TEMPLATE_TEST_CASE("factors of samples are those that dropout gives to ones, on both devices",
                   "[gpu]", float, double) {
  using T = TestType;
  need_device();
  for (const double p : {0.0, 0.3, 0.5, 0.9}) {
    for_each_draw([=](std::int64_t n, std::uint64_t offset, std::int64_t shift) {
      const std::vector<T> ones(static_cast<std::size_t>(n), T(1));
      std::vector<std::uint8_t> mask(ones.size());
      std::vector<T> dropped(ones.size());
      std::vector<T> factors(ones.size());
      cpu::dropout_forward(n, ones.data(), p, kSeed, kSubsequence, offset, mask.data(),
                           dropped.data());
      cpu::dropout_factors(n, p, kSeed, kSubsequence, offset, factors.data());
      CHECK(factors == dropped);
      const DeviceArray<T> dfactors(n, shift);
      dropout_factors(n, p, kSeed, kSubsequence, offset, dfactors.data());
      CHECK(holds(dfactors, factors));
    });
  }
}

TEMPLATE_TEST_CASE("uniform and normal draws have the CPU's bits on the device", "[gpu]", float,
                   double) {
  using T = TestType;
  need_device();
  for_each_draw([](std::int64_t n, std::uint64_t offset, std::int64_t shift) {
    const auto x = values<T>(n, 1);
    const DeviceArray<T> dx(x, shift);
    std::vector<T> want(x.size());
    std::vector<T> noise(x.size());
    const DeviceArray<T> got(n, shift);
    const DeviceArray<T> got_noise(n, shift);

    cpu::rrelu_forward(n, x.data(), T(0.125), T(0.5), kSeed, kSubsequence, offset, noise.data(),
                       want.data());
    rrelu_forward(n, dx.data(), T(0.125), T(0.5), kSeed, kSubsequence, offset, got_noise.data(),
                  got.data());
    CHECK(holds(got_noise, noise));
    CHECK(holds(got, want));

    cpu::multiply(n, x.data(), noise.data(), want.data());
    multiply(n, dx.data(), got_noise.data(), got.data());
    CHECK(holds(got, want));

    cpu::fill_uniform(n, kSeed, kSubsequence, offset, T(-2), T(3), want.data());
    fill_uniform(n, kSeed, kSubsequence, offset, T(-2), T(3), got.data());
    CHECK(holds(got, want));

    cpu::fill_normal(n, kSeed, kSubsequence, offset, T(1), T(2), want.data());
    fill_normal(n, kSeed, kSubsequence, offset, T(1), T(2), got.data());
    CHECK(holds(got, want));

    cpu::gaussian_noise_forward(n, x.data(), T(0.5), kSeed, kSubsequence, offset, want.data());
    gaussian_noise_forward(n, dx.data(), T(0.5), kSeed, kSubsequence, offset, got.data());
    CHECK(holds(got, want));
  });
}

}  // namespace
}  // namespace rematch::cuda
