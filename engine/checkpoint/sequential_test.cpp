#include "engine/checkpoint/sequential.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>

#include "engine/testing/ledger_scope.h"

namespace rematch {

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
