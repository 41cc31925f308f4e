#include <catch2/catch_test_macros.hpp>
#include <vector>

#include "engine/autograd/backward.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/ops/arithmetic.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using namespace testing;
using Values = std::vector<double>;

TEST_CASE_METHOD(LedgerScope, "a hook that a recomputation registers again runs once") {
  for (const bool reentrant : {false, true}) {
    const Tensor x = variable({3}, {1});
    const Tensors y =
        checkpoint([](const Tensors& in) { return Tensors{mul(hooked(in[0], 2), in[0])}; }, {x},
                   {.reentrant = reentrant});
    backward(y[0]);
    CHECK(x.grad().to_vector() == Values{9});  // 2 * 3 by way of the hook, and 3
  }
}

}  // namespace
}  // namespace rematch
