#include "engine/kernels/moe.h"

#include <catch2/catch_template_test_macros.hpp>

#include "engine/cuda/testing/twin.h"

namespace rematch::cuda {
namespace {

using namespace testing;

TYPED_DEVICE_TEST_CASE("a mixture of experts gives the CPU's bits on the device", "[sums]") {
  using T = TestType;
  for (const std::int64_t n : {1, 31, 300}) {
    for (const std::int64_t experts : {1, 3, 8}) {
      for (const std::int64_t top : {1, 2}) {
        if (top > experts) continue;
        const T jitter = n == 31 ? T(0.25) : T(0);
        const math::MoeShape s{.rows = n, .features = 7, .experts = experts, .top = top};
        CAPTURE(n, experts, top);
        const Twin<T> x(values<T>(n * s.features, 1));
        const Twin<T> router(values<T>(experts * s.features, 2));
        const Twin<T> w(values<T>(experts * s.matrix(), 3));
        const Twin<T> gy(values<T>(n * s.features, 4));
        // Noise, of which the kernel makes probabilities.
        const Twin<T> p(values<T>(n * experts, 5));
        const Twin<std::int32_t> chosen(n * top);
        const Twin<T> outputs(s.outputs());
        const Twin<T> y(n * s.features);
        const Twin<T> load(std::vector<T>(static_cast<std::size_t>(experts), T(5)));
        const Twin<T> gx(n * s.features);
        const Twin<T> grouter(experts * s.features);
        const Twin<T> gw(experts * s.matrix());
        REMATCH_CALL_BOTH(moe_forward<T>, s, x, router, w, jitter, p, chosen, outputs, y);
        REMATCH_CALL_BOTH(moe_backward<T>, s, gy, x, router, w, p, chosen, outputs, gx, grouter,
                          gw);
        REMATCH_CALL_BOTH(count_rows_of_experts<T>, n * top, experts, chosen, load);
        check_alike(p, chosen, outputs, y, load, gx, grouter, gw);
      }
    }
  }
}

}  // namespace
}  // namespace rematch::cuda
