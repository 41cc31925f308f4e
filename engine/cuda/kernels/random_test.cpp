#include "engine/kernels/random.h"

#include <catch2/catch_template_test_macros.hpp>

#include "engine/cuda/testing/twin.h"

namespace rematch::cuda {
namespace {

using namespace testing;

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

TYPED_DEVICE_TEST_CASE("dropout drops the same elements on the device as on the CPU") {
  using T = TestType;
  for (const double p : {0.0, 0.3, 0.5, 1.0}) {
    for_each_draw([=](std::int64_t n, std::uint64_t offset, std::int64_t shift) {
      const Twin<T> x(values<T>(n, 1), shift);
      const Twin<std::uint8_t> mask(n, shift);
      const Twin<T> y(n, shift);
      const Twin<T> gx(n, shift);
      REMATCH_CALL_BOTH(dropout_forward<T>, n, x, p, kSeed, kSubsequence, offset, mask, y);
      REMATCH_CALL_BOTH(dropout_backward<T>, n, x, mask, p, gx);
      check_alike(mask, y, gx);
    });
  }
}

TYPED_DEVICE_TEST_CASE("factors of samples are those that dropout gives to ones, on both devices") {
  using T = TestType;
  for (const double p : {0.0, 0.3, 0.5, 0.9}) {
    for_each_draw([=](std::int64_t n, std::uint64_t offset, std::int64_t shift) {
      const std::vector<T> ones(static_cast<std::size_t>(n), T(1));
      std::vector<std::uint8_t> mask(ones.size());
      std::vector<T> dropped(ones.size());
      cpu::dropout_forward(n, ones.data(), p, kSeed, kSubsequence, offset, mask.data(),
                           dropped.data());
      const Twin<T> factors(n, shift);
      REMATCH_CALL_BOTH(dropout_factors<T>, n, p, kSeed, kSubsequence, offset, factors);
      CHECK(factors.host() == dropped);
      check_alike(factors);
    });
  }
}

TYPED_DEVICE_TEST_CASE("uniform and normal draws have the CPU's bits on the device") {
  using T = TestType;
  for_each_draw([](std::int64_t n, std::uint64_t offset, std::int64_t shift) {
    const Twin<T> x(values<T>(n, 1), shift);
    const Twin<T> y(n, shift);
    const Twin<T> noise(n, shift);
    REMATCH_CALL_BOTH(rrelu_forward<T>, n, x, T(0.125), T(0.5), kSeed, kSubsequence, offset, noise,
                      y);
    check_alike(noise, y);
    REMATCH_CALL_BOTH(multiply<T>, n, x, noise, y);
    check_alike(y);
    REMATCH_CALL_BOTH(fill_uniform<T>, n, kSeed, kSubsequence, offset, T(-2), T(3), y);
    check_alike(y);
    REMATCH_CALL_BOTH(fill_normal<T>, n, kSeed, kSubsequence, offset, T(1), T(2), y);
    check_alike(y);
    REMATCH_CALL_BOTH(gaussian_noise_forward<T>, n, x, T(0.5), kSeed, kSubsequence, offset, y);
    check_alike(y);
  });
}

}  // namespace
}  // namespace rematch::cuda
