#include "engine/kernels/attention.h"

#include <catch2/catch_template_test_macros.hpp>

#include "engine/cuda/testing/twin.h"

namespace rematch::cuda {
namespace {

using math::AttentionShape;
using math::AttentionState;
using namespace testing;

constexpr AttentionShape kAttentionShapes[] = {
    {},
    {.batch = 2, .queries = 3, .keys = 3, .heads = 2, .memory_heads = 2, .size = 4, .causal = true},
    {.batch = 1, .queries = 5, .keys = 40, .heads = 6, .memory_heads = 2, .size = 3},
    {.batch = 3, .queries = 7, .keys = 9, .heads = 4, .memory_heads = 1, .size = 5, .causal = true},
    // Several blocks of queries.
    {.batch = 1,
     .queries = 130,
     .keys = 140,
     .heads = 2,
     .memory_heads = 1,
     .size = 2,
     .causal = true},
    // Rows of more than one block of a sum.
    {.batch = 1, .queries = 2, .keys = 1100, .heads = 1, .memory_heads = 1, .size = 2}};

TYPED_DEVICE_TEST_CASE("attention gives the CPU's bits on the device", "[sums]") {
  using T = TestType;
  for (const AttentionShape& s : kAttentionShapes) {
    for (const double p : {0.0, 0.5}) {
      for (const bool fused : {false, true}) {
        CAPTURE(s.queries, s.keys, s.heads, s.causal, p, fused);
        const std::int64_t width = s.batch * s.queries * s.width();
        const std::int64_t memory_width = s.batch * s.keys * s.memory_width();
        const Twin<T> q(values<T>(width, 1));
        const Twin<T> memory(values<T>(memory_width, 2));
        const Twin<T> gy(values<T>(width, 3));
        const AttentionDropout dropout{p, {7, 1, 4}};
        const Twin<T> kept(fused ? s.rows() : s.scores());
        const Twin<std::uint8_t> mask(s.scores());
        const Twin<T> y(width);
        const Twin<T> gq(width);
        const Twin<T> gmemory(memory_width);
        const bool masked = !fused && p > 0;
        const auto state = [&](auto at) {
          return fused ? AttentionState<T>{nullptr, nullptr, at(kept)}
                       : AttentionState<T>{at(kept), masked ? at(mask) : nullptr, nullptr};
        };
        REMATCH_CALL_BOTH(attention_forward<T>, s, q, memory, dropout, state, y);
        REMATCH_CALL_BOTH(attention_backward<T>, s, gy, q, memory, y, dropout, state, gq, gmemory);
        check_alike(y, kept, gq, gmemory);
        if (masked) check_alike(mask);
      }
    }
  }
}

}  // namespace
}  // namespace rematch::cuda
