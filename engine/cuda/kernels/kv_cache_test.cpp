#include "engine/kernels/kv_cache.h"

#include <catch2/catch_template_test_macros.hpp>

#include "engine/cuda/testing/device.h"

namespace rematch::cuda {
namespace {

using testing::DeviceArray;
using testing::holds;
using testing::need_device;
using testing::values;

TEMPLATE_TEST_CASE("a cache stands before every sequence on the device, as on the CPU", "[gpu]",
                   float, double) {
  using T = TestType;
  need_device();
  for (const std::int64_t sequences : {1, 3, 70}) {
    for (const std::int64_t cached : {1, 6, 33}) {
      for (const std::int64_t added : {1, 8, 515}) {
        CAPTURE(sequences, cached, added);
        const auto cache = values<T>(cached, 1);
        const auto x = values<T>(sequences * added, 2);
        std::vector<T> y(static_cast<std::size_t>(sequences * (cached + added)));
        cpu::prepend(sequences, cached, added, cache.data(), x.data(), y.data());
        const DeviceArray<T> dcache(cache);
        const DeviceArray<T> dx(x);
        const DeviceArray<T> dy(sequences * (cached + added));
        prepend(sequences, cached, added, dcache.data(), dx.data(), dy.data());
        CHECK(holds(dy, y));
      }
    }
  }
}

}  // namespace
}  // namespace rematch::cuda
