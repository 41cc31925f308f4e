#include "engine/kernels/attention.h"

#include <catch2/catch_template_test_macros.hpp>

#include "engine/cuda/testing/device.h"

namespace rematch::cuda {
namespace {

using math::AttentionShape;
using math::AttentionState;
using testing::DeviceArray;
using testing::holds;
using testing::need_device;
using testing::values;

constexpr AttentionShape kAttentionShapes[] = {
    {},
    {.batch = 2, .queries = 3, .keys = 3, .heads = 2, .memory_heads = 2, .size = 4, .causal = true},
    {.batch = 1, .queries = 5, .keys = 40, .heads = 6, .memory_heads = 2, .size = 3},
    {.batch = 3, .queries = 7, .keys = 9, .heads = 4, .memory_heads = 1, .size = 5, .causal = true},
    // Rows of more than one block of a sum.
    {.batch = 1, .queries = 2, .keys = 1100, .heads = 1, .memory_heads = 1, .size = 2}};

TEMPLATE_TEST_CASE("attention gives the CPU's bits on the device", "[gpu][sums]", float, double) {
  using T = TestType;
  need_device();
  for (const AttentionShape& s : kAttentionShapes) {
    for (const double p : {0.0, 0.5}) {
      for (const bool fused : {false, true}) {
        CAPTURE(s.queries, s.keys, s.heads, s.causal, p, fused);
        const std::int64_t width = s.batch * s.queries * s.width();
        const std::int64_t memory_width = s.batch * s.keys * s.memory_width();
        const auto q = values<T>(width, 1);
        const auto memory = values<T>(memory_width, 2);
        const auto gy = values<T>(width, 3);
        const AttentionDropout dropout{p, {7, 1, 4}};
        std::vector<T> kept(static_cast<std::size_t>(fused ? s.rows() : s.scores()));
        std::vector<std::uint8_t> mask(static_cast<std::size_t>(s.scores()));
        std::vector<T> y(q.size());
        std::vector<T> gq(q.size());
        std::vector<T> gmemory(memory.size());
        const auto state = [&](T* held, std::uint8_t* drawn) {
          return fused ? AttentionState<T>{nullptr, nullptr, held}
                       : AttentionState<T>{held, p > 0 ? drawn : nullptr, nullptr};
        };
        const AttentionState<T> on_host = state(kept.data(), mask.data());
        cpu::attention_forward(s, q.data(), memory.data(), dropout, on_host, y.data());
        cpu::attention_backward(s, gy.data(), q.data(), memory.data(), y.data(), dropout, on_host,
                                gq.data(), gmemory.data());

        const DeviceArray<T> dq(q);
        const DeviceArray<T> dmemory(memory);
        const DeviceArray<T> dgy(gy);
        const DeviceArray<T> dkept(static_cast<std::int64_t>(kept.size()));
        const DeviceArray<std::uint8_t> dmask(s.scores());
        const DeviceArray<T> dy(width);
        const DeviceArray<T> dgq(width);
        const DeviceArray<T> dgmemory(memory_width);
        const AttentionState<T> there = state(dkept.data(), dmask.data());
        attention_forward(s, dq.data(), dmemory.data(), dropout, there, dy.data());
        attention_backward(s, dgy.data(), dq.data(), dmemory.data(), dy.data(), dropout, there,
                           dgq.data(), dgmemory.data());
        CHECK(holds(dy, y));
        CHECK(holds(dkept, kept));
        CHECK(holds(dgq, gq));
        CHECK(holds(dgmemory, gmemory));
        if (there.mask != nullptr) CHECK(holds(dmask, mask));
      }
    }
  }
}

}  // namespace
}  // namespace rematch::cuda
