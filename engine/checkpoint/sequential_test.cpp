#include "engine/checkpoint/sequential.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>

#include "engine/autograd/backward.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/testing/ledger_scope.h"

namespace rematch {
TEST_CASE("every layer runs twice but those of a stored last segment, for all n and k") {
  for (const int n : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 3000}) {
    // A few numbers of segments where there are thousands of layers.
    for (int k = 1; k <= n; k += n < 100 ? 1 : 1499) {
      for (const bool reentrant : {false, true}) {
        for (const LastSegment last : {LastSegment::stored, LastSegment::checkpointed}) {
          const testing::LedgerScope scope;
          std::vector<int> runs(static_cast<std::size_t>(n), 0);
          std::vector<Function> layers;
          for (std::size_t i = 0; i < runs.size(); ++i) {
            layers.emplace_back([&runs, i](const Tensors& in) -> Tensors {
              ++runs[i];
              return {tanh(in[0])};
            });
          }
          CheckpointOptions options;
          options.reentrant = reentrant;
          const Tensor x = Tensor::ones({2, 2}, DType::float32).set_requires_grad(true);
          backward(sum(checkpoint_sequential(layers, k, {x}, last, options)[0]));
          const int size = n / k;
          const int recomputed = last == LastSegment::stored ? size * (k - 1) : n;
          std::vector<int> expected(static_cast<std::size_t>(n), 1);
          std::fill_n(expected.begin(), recomputed, 2);
          INFO("n " << n << " k " << k);
          REQUIRE(runs == expected);
        }
      }
    }
  }
}

TEST_CASE("segments outside 1..n are refused with the range and what came") {
  const std::vector<Function> layers(7, [](const Tensors& in) { return in; });
  const Tensor x = Tensor::ones({2, 2}, DType::float32);
  CHECK_THROWS_WITH(checkpoint_sequential(layers, 9, {x}),
                    "[checkpoint_sequential] segments must be in 1..7, got 9");
  CHECK_THROWS_WITH(checkpoint_sequential(layers, 0, {x}),
                    "[checkpoint_sequential] segments must be in 1..7, got 0");
  CHECK_THROWS_WITH(checkpoint_sequential(layers, -1, {x}),
                    "[checkpoint_sequential] segments must be in 1..7, got -1");
  CHECK_THROWS_AS(checkpoint_sequential({}, 1, {x}), std::invalid_argument);
}

}  // namespace rematch
