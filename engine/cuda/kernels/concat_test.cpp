#include "engine/kernels/concat.h"

#include <catch2/catch_template_test_macros.hpp>

#include "engine/cuda/testing/device.h"

namespace rematch::cuda {
namespace {

using testing::DeviceArray;
using testing::holds;
using testing::need_device;
using testing::values;

TEMPLATE_TEST_CASE("concat2 and split2 move what they move on the CPU", "[gpu]", float, double) {
  using T = TestType;
  need_device();
  for (const std::int64_t outer : {0, 1, 3, 1000}) {
    for (const std::int64_t inner_a : {0, 1, 4, 7, 256}) {
      for (const std::int64_t inner_b : {0, 3, 8, 300}) {
        for (const std::int64_t shift : {0, 1}) {
          CAPTURE(outer, inner_a, inner_b, shift);
          const auto a = values<T>(outer * inner_a, 1);
          const auto b = values<T>(outer * inner_b, 2);
          std::vector<T> both(a.size() + b.size());
          cpu::concat2(outer, inner_a, inner_b, a.data(), b.data(), both.data());
          const DeviceArray<T> da(a, shift);
          const DeviceArray<T> db(b, shift);
          const DeviceArray<T> out(outer * (inner_a + inner_b), shift);
          concat2(outer, inner_a, inner_b, da.data(), db.data(), out.data());
          CHECK(holds(out, both));
          const DeviceArray<T> back_a(outer * inner_a, shift);
          const DeviceArray<T> back_b(outer * inner_b, shift);
          split2<T>(outer, inner_a, inner_b, out.data(), back_a.data(), nullptr);
          split2<T>(outer, inner_a, inner_b, out.data(), nullptr, back_b.data());
          CHECK(holds(back_a, a));
          CHECK(holds(back_b, b));
          split2(outer, inner_a, inner_b, out.data(), back_a.data(), back_b.data());
          CHECK(holds(back_a, a));
          CHECK(holds(back_b, b));
        }
      }
    }
  }
}

}  // namespace
}  // namespace rematch::cuda
