#include "engine/kernels/moe.h"

#include <catch2/catch_template_test_macros.hpp>

#include "engine/cuda/testing/device.h"

namespace rematch::cuda {
namespace {

using testing::DeviceArray;
using testing::holds;
using testing::need_device;
using testing::values;

TEMPLATE_TEST_CASE("a mixture of experts gives the CPU's bits on the device", "[gpu][sums]", float,
                   double) {
  using T = TestType;
  need_device();
  for (const std::int64_t n : {1, 31, 300}) {
    for (const std::int64_t experts : {1, 3, 8}) {
      for (const std::int64_t top : {1, 2}) {
        if (top > experts) continue;
        const T jitter = n == 31 ? T(0.25) : T(0);
        const math::MoeShape s{.rows = n, .features = 7, .experts = experts, .top = top};
        CAPTURE(n, experts, top);
        const auto x = values<T>(n * s.features, 1);
        const auto router = values<T>(experts * s.features, 2);
        const auto w = values<T>(experts * s.matrix(), 3);
        const auto gy = values<T>(n * s.features, 4);
        const auto noise = values<T>(n * experts, 5);
        auto p = noise;
        std::vector<std::int32_t> chosen(static_cast<std::size_t>(n * top));
        std::vector<T> outputs(static_cast<std::size_t>(s.outputs()));
        std::vector<T> y(x.size());
        std::vector<T> load(static_cast<std::size_t>(experts), T(5));
        std::vector<T> gx(x.size());
        std::vector<T> grouter(router.size());
        std::vector<T> gw(w.size());
        cpu::moe_forward(s, x.data(), router.data(), w.data(), jitter, p.data(), chosen.data(),
                         outputs.data(), y.data());
        cpu::moe_backward(s, gy.data(), x.data(), router.data(), w.data(), p.data(), chosen.data(),
                          outputs.data(), gx.data(), grouter.data(), gw.data());
        const DeviceArray<T> dx(x);
        const DeviceArray<T> drouter(router);
        const DeviceArray<T> dw(w);
        const DeviceArray<T> dgy(gy);
        const DeviceArray<T> dp(noise);
        const DeviceArray<std::int32_t> dchosen(n * top);
        const DeviceArray<T> doutputs(s.outputs());
        const DeviceArray<T> dy(n * s.features);
        const DeviceArray<T> dload(load);
        const DeviceArray<T> dgx(n * s.features);
        const DeviceArray<T> dgrouter(experts * s.features);
        const DeviceArray<T> dgw(experts * s.matrix());
        moe_forward(s, dx.data(), drouter.data(), dw.data(), jitter, dp.data(), dchosen.data(),
                    doutputs.data(), dy.data());
        moe_backward(s, dgy.data(), dx.data(), drouter.data(), dw.data(), dp.data(), dchosen.data(),
                     doutputs.data(), dgx.data(), dgrouter.data(), dgw.data());
        cpu::count_rows_of_experts(n * top, experts, chosen.data(), load.data());
        count_rows_of_experts(n * top, experts, dchosen.data(), dload.data());
        CHECK(holds(dp, p));
        CHECK(holds(dchosen, chosen));
        CHECK(holds(doutputs, outputs));
        CHECK(holds(dy, y));
        CHECK(holds(dload, load));
        CHECK(holds(dgx, gx));
        CHECK(holds(dgrouter, grouter));
        CHECK(holds(dgw, gw));
      }
    }
  }
}

}  // namespace
}  // namespace rematch::cuda
