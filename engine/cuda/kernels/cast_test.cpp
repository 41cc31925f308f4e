#include "engine/kernels/cast.h"

#include <catch2/catch_test_macros.hpp>

#include "engine/cuda/testing/twin.h"
#include "engine/kernels/elementwise.h"

namespace rematch::cuda {
namespace {

using math::BFloat16;
using namespace testing;

/// n of all bit patterns, in an order that is the same for the same seed.
std::vector<BFloat16> patterns(std::int64_t n, std::uint32_t seed) {
  std::vector<BFloat16> out(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < out.size(); ++i) {
    // 40503 is odd: a permutation of the 2^16 patterns.
    out[i].bits = static_cast<std::uint16_t>((i + seed) * 40503U);
  }
  return out;
}

DEVICE_TEST_CASE("casts have the CPU's bits on the device, whatever length and alignment") {
  for_each_layout([](std::int64_t n, std::int64_t shift) {
    const Twin<BFloat16> narrow(patterns(n, 1), shift);
    const Twin<float> upcast_values(n, shift);
    REMATCH_CALL_BOTH(upcast, n, narrow, upcast_values);
    const Twin<float> wide(values<float>(n, 2), shift);
    const Twin<BFloat16> rounded(n, shift);
    REMATCH_CALL_BOTH(downcast, n, wide, rounded);
    check_alike(upcast_values, rounded);
  });
}

DEVICE_TEST_CASE(
    "every high half is rounded on the device as on the CPU, on, below and above ties") {
  std::vector<float> in;
  for (std::uint32_t high = 0; high < 0x10000U; ++high) {
    for (const std::uint32_t low : {0U, 1U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU}) {
      in.push_back(math::detail::bits_as<float>(high << 16U | low));
    }
  }
  const auto n = static_cast<std::int64_t>(in.size());
  const Twin<float> from(in);
  const Twin<BFloat16> to(n);
  REMATCH_CALL_BOTH(downcast, n, from, to);
  check_alike(to);
}

DEVICE_TEST_CASE("bfloat16 is added and filled on the device to the CPU's bits") {
  for_each_layout([](std::int64_t n, std::int64_t shift) {
    const Twin<BFloat16> a(patterns(n, 1), shift);
    const Twin<BFloat16> b(patterns(n, 777), shift);
    const Twin<BFloat16> sum(n, shift);
    REMATCH_CALL_BOTH(add<BFloat16>, n, a, b, sum);
    check_alike(sum);
    REMATCH_CALL_BOTH(add_inplace<BFloat16>, n, a, b);
    check_alike(b);
    REMATCH_CALL_BOTH(fill<BFloat16>, n, BFloat16(1.0 / 3), sum);
    check_alike(sum);
  });
}

}  // namespace
}  // namespace rematch::cuda
