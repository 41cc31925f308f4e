#include <catch2/catch_test_macros.hpp>

#include "engine/autograd/backward.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {

using namespace testing;

TEST_CASE_METHOD(LedgerScope, "an unused output is gone before its recomputation is walked") {
  const Tensor x = variable({0.5, -1}, {2});
  constexpr std::int64_t kLarge = 1000;
  std::int64_t at_end = 0;
  Tensors outputs = checkpoint(
      [&](const Tensors& in) -> Tensors {
        if (ambient().recomputing) {
          Tensor input = in[0];
          input.register_hook([&](const Tensor&) {
            at_end = ledger().live();
            return Tensor();
          });
        }
        return {tanh(in[0]), scale(Tensor::ones({kLarge}, DType::float64), 2)};
      },
      {x}, {.reentrant = true});
  const Tensor loss = sum(outputs[0]);
  outputs.clear();
  backward(loss);
  CHECK(at_end > 0);
  CHECK(at_end < kLarge * 8);
}

}  // namespace rematch
