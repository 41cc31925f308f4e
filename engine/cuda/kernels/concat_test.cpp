#include "engine/kernels/concat.h"

#include <catch2/catch_template_test_macros.hpp>

#include "engine/cuda/testing/twin.h"

namespace rematch::cuda {
namespace {

using namespace testing;

TYPED_DEVICE_TEST_CASE("concat2 and split2 move what they move on the CPU") {
  using T = TestType;
  for (const std::int64_t outer : {0, 1, 3, 1000}) {
    for (const std::int64_t inner_a : {0, 1, 4, 7, 256}) {
      for (const std::int64_t inner_b : {0, 3, 8, 300}) {
        for (const std::int64_t shift : {0, 1}) {
          CAPTURE(outer, inner_a, inner_b, shift);
          const Twin<T> a(values<T>(outer * inner_a, 1), shift);
          const Twin<T> b(values<T>(outer * inner_b, 2), shift);
          const Twin<T> both(outer * (inner_a + inner_b), shift);
          REMATCH_CALL_BOTH(concat2<T>, outer, inner_a, inner_b, a, b, both);
          check_alike(both);
          const Twin<T> back_a(outer * inner_a, shift);
          const Twin<T> back_b(outer * inner_b, shift);
          REMATCH_CALL_BOTH(split2<T>, outer, inner_a, inner_b, both, back_a, nullptr);
          REMATCH_CALL_BOTH(split2<T>, outer, inner_a, inner_b, both, nullptr, back_b);
          check_alike(back_a, back_b);
          REMATCH_CALL_BOTH(split2<T>, outer, inner_a, inner_b, both, back_a, back_b);
          check_alike(back_a, back_b);
          CHECK(testing::same_bits(back_a.host(), a.host()));
          CHECK(testing::same_bits(back_b.host(), b.host()));
        }
      }
    }
  }
}

}  // namespace
}  // namespace rematch::cuda
