#include <catch2/catch_test_macros.hpp>
#include <thread>

#include "engine/ambient/ambient.h"
#include "engine/autograd/backward.h"
#include "engine/ops/arithmetic.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {

using namespace testing;

TEST_CASE_METHOD(LedgerScope, "a graph that one thread walked can be walked by the next") {
  // Both are the first pass of their thread, so that they have one number.
  const Tensor x = variable({3}, {1});
  const Tensor y = mul(x, x);
  const Tensor loss = add(scale(y, 2), y);
  for (int i = 0; i < 2; ++i) {
    std::thread([&, shared = ambient().ledger] {
      ambient().ledger = shared;
      backward(loss, {.retain_graph = true});
      ambient() = Ambient{};
    }).join();
  }
  CHECK(x.grad().item() == 2 * 18);
}

}  // namespace rematch
