#include "engine/kernels/cast.h"

#include <catch2/catch_test_macros.hpp>

#include "engine/cuda/testing/device.h"
#include "engine/kernels/elementwise.h"

namespace rematch::cuda {
namespace {

using math::BFloat16;
using testing::DeviceArray;
using testing::for_each_layout;
using testing::holds;
using testing::need_device;
using testing::values;

/// n of all bit patterns, in an order that is the same for the same seed.
std::vector<BFloat16> patterns(std::int64_t n, std::uint32_t seed) {
  std::vector<BFloat16> out(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < out.size(); ++i) {
    // 40503 is odd: a permutation of the 2^16 patterns.
    out[i].bits = static_cast<std::uint16_t>((i + seed) * 40503U);
  }
  return out;
}

TEST_CASE("casts have the CPU's bits on the device, whatever length and alignment", "[gpu]") {
  need_device();
  for_each_layout([](std::int64_t n, std::int64_t shift) {
    const std::vector<BFloat16> downcast_values = patterns(n, 1);
    std::vector<float> want(static_cast<std::size_t>(n));
    cpu::upcast(n, downcast_values.data(), want.data());
    const DeviceArray<BFloat16> in(downcast_values, shift);
    const DeviceArray<float> out(n, shift);
    upcast(n, in.data(), out.data());
    CHECK(holds(out, want));

    const std::vector<float> wide = values<float>(n, 2);
    std::vector<BFloat16> want_downcast(static_cast<std::size_t>(n));
    cpu::downcast(n, wide.data(), want_downcast.data());
    const DeviceArray<float> from(wide, shift);
    const DeviceArray<BFloat16> to(n, shift);
    downcast(n, from.data(), to.data());
    CHECK(holds(to, want_downcast));
  });
}

TEST_CASE("every high half is rounded on the device as on the CPU, on, below and above ties",
          "[gpu]") {
  need_device();
  std::vector<float> in;
  for (std::uint32_t high = 0; high < 0x10000U; ++high) {
    for (const std::uint32_t low : {0U, 1U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU}) {
      in.push_back(math::detail::bits_as<float>(high << 16U | low));
    }
  }
  const auto n = static_cast<std::int64_t>(in.size());
  std::vector<BFloat16> want(in.size());
  cpu::downcast(n, in.data(), want.data());
  const DeviceArray<float> from(in);
  const DeviceArray<BFloat16> to(n);
  downcast(n, from.data(), to.data());
  CHECK(holds(to, want));
}

TEST_CASE("bfloat16 is added and filled on the device to the CPU's bits", "[gpu]") {
  need_device();
  for_each_layout([](std::int64_t n, std::int64_t shift) {
    const std::vector<BFloat16> a = patterns(n, 1);
    const std::vector<BFloat16> b = patterns(n, 777);
    const DeviceArray<BFloat16> da(a, shift);
    const DeviceArray<BFloat16> db(b, shift);
    std::vector<BFloat16> want(a.size());
    cpu::add(n, a.data(), b.data(), want.data());
    const DeviceArray<BFloat16> sum(n, shift);
    add(n, da.data(), db.data(), sum.data());
    CHECK(holds(sum, want));
    add_inplace(n, da.data(), db.data());
    CHECK(holds(db, want));
    const BFloat16 third(1.0 / 3);
    fill(n, third, sum.data());
    CHECK(holds(sum, std::vector<BFloat16>(a.size(), third)));
  });
}

}  // namespace
}  // namespace rematch::cuda
