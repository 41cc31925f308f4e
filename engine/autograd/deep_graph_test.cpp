#include <catch2/catch_test_macros.hpp>

#include "engine/autograd/backward.h"
#include "engine/autograd/saved_tensor.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/view.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using testing::LedgerScope;
using testing::variable;

// A recursive destructor needs some hundred bytes of stack a node; the usual 8 MiB end well below
// this depth.
constexpr int kDepth = 200000;

TEST_CASE_METHOD(LedgerScope, "a chain of any length can be dropped") {
  const Tensor x = variable({1}, {1});
  Tensor y = x;
  for (int i = 0; i < kDepth; ++i) y = scale(y, 1);
  y = Tensor();
  CHECK(ledger().live() == 8);
}

TEST_CASE_METHOD(LedgerScope,
                 "a chain whose nodes are used twice by their successor can be dropped") {
  const Tensor x = variable({1}, {1});
  Tensor y = x;
  for (int i = 0; i < kDepth; ++i) y = add(y, y);
  y = Tensor();
  CHECK(ledger().live() == 8);
}

TEST_CASE_METHOD(LedgerScope,
                 "a chain in which every node is also used further on can be dropped") {
  const Tensor x = variable({1}, {1});
  Tensor before = x;
  Tensor y = scale(x, 1);
  for (int i = 0; i < kDepth; ++i) before = std::exchange(y, add(y, before));
  before = Tensor();
  y = Tensor();
  CHECK(ledger().live() == 8);
}

TEST_CASE_METHOD(LedgerScope, "a chain of writes in place, through a view, can be dropped") {
  const Tensor x = variable({1}, {1});
  Tensor y = scale(x, 1);
  Tensor view = reshape(y, {1, 1});
  for (int i = 0; i < kDepth / 10; ++i) scale_(i % 2 == 0 ? y : view, 1);
  y = Tensor();
  view = Tensor();
  CHECK(ledger().live() == 8);
}

TEST_CASE_METHOD(LedgerScope, "a chain of saved tensors behind identity hooks can be dropped") {
  const auto same = [](const Tensor& t) { return t; };
  FunctionHooks hooks(same, same);
  const Tensor x = variable({1}, {1});
  Tensor y = x;
  {
    const HookScope scope(&hooks);
    for (int i = 0; i < kDepth; ++i) y = mul(y, y);
  }
  y = Tensor();
  CHECK(ledger().live() == 8);
}

TEST_CASE_METHOD(LedgerScope, "a chain of any length can be walked") {
  const Tensor x = variable({1}, {1});
  Tensor y = x;
  for (int i = 0; i < kDepth; ++i) y = scale(y, 1);
  backward(y);
  CHECK(x.grad().item() == 1);
}

TEST_CASE_METHOD(LedgerScope, "a chain that branches at every node is walked once a node") {
  const Tensor x = variable({1}, {1});
  Tensor y = x;
  for (int i = 0; i < 1000; ++i) y = scale(add(y, y), 0.5);
  backward(y);
  CHECK(x.grad().item() == 1);
}

}  // namespace
}  // namespace rematch
