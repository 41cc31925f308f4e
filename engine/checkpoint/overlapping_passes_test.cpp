// Backward passes that overlap over one checkpoint: each has a recomputation of its own.
#include <catch2/catch_test_macros.hpp>
#include <vector>

#include "engine/autograd/backward.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {

using testing::LedgerScope;
using testing::same_bits;
using testing::values_off_zero;

TEST_CASE_METHOD(
    LedgerScope,
    "a pass within a pass ends with its own recomputation and leaves the outer one's") {
  const Tensor x = values_off_zero({3, 4}, 5).set_requires_grad(true);
  const std::int64_t bytes = x.bytes();
  int runs = 0;
  Tensor middle;
  const Function f = [&](const Tensors& in) -> Tensors {
    const Tensor h = tanh(tanh(in[0]));
    if (++runs == 1) middle = h;
    return {tanh(tanh(h))};
  };
  const Tensor loss = sum(checkpoint(f, {x})[0]);
  std::vector<std::int64_t> held;
  const std::int64_t before = ledger().live(Tag::saved);
  middle.register_hook([&](const Tensor&) -> Tensor {
    if (held.empty()) {
      // The results of the first two are still to be read.
      held.push_back(ledger().live(Tag::saved) - before);
      backward(loss, {.retain_graph = true});
      held.push_back(ledger().live(Tag::saved) - before);
    }
    return {};
  });
  middle = Tensor();
  backward(loss, {.retain_graph = true});
  CHECK(held == std::vector<std::int64_t>{2 * bytes, 2 * bytes});
  CHECK(runs == 3);
  const Tensor plain = values_off_zero({3, 4}, 5).set_requires_grad(true);
  const Tensor again = sum(tanh(tanh(tanh(tanh(plain)))));
  for (int i = 0; i < 2; ++i) backward(again, {.retain_graph = true});
  CHECK(same_bits(x.grad(), plain.grad()));
  CHECK(ledger().live(Tag::saved) == before + 4 * bytes);
}

}  // namespace rematch
