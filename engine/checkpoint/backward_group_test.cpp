#include "engine/checkpoint/backward_group.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <optional>
#include <set>
#include <thread>

#include "engine/autograd/backward.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {

using namespace testing;

TEST_CASE_METHOD(LedgerScope,
                 "recomputed tensors that others keep are theirs once they have served") {
  const bool grouped = GENERATE(false, true);
  const Tensor x = variable({0.5, -1}, {2});
  // The recomputation's results live on. Tensors that a node read, that a backward or a group
  // left over, or that were for a part of the graph that is gone, are not saved any more.
  Tensors kept;
  CheckpointOptions options;
  options.early_stop = false;
  Tensors outputs = checkpoint(
      [&](const Tensors& in) -> Tensors {
        const Tensor first = tanh(in[0]);
        const Tensor second = tanh(sigmoid(in[0]));
        kept = {first.detach(), second.detach()};
        return {first, second};
      },
      {x}, options);
  kept.clear();
  const std::int64_t before = ledger().live();
  {
    std::optional<BackwardGroup> group;
    if (grouped) group.emplace();
    // Retained, so that the checkpoint lives on when the second output is gone.
    backward(sum(outputs[0]), {.retain_graph = true});
    // The input, and in a group what was recomputed for the second output.
    CHECK(ledger().live(Tag::saved) == (grouped ? 3 : 1) * 16);
    CHECK(ledger().live() == before + (grouped ? 3 : 2) * 16 + x.grad().bytes());
    // That of the sigmoid has no other owner.
    outputs[1] = Tensor();
    CHECK(ledger().live() == before + 16 + x.grad().bytes());
    outputs.clear();
    CHECK(ledger().live(Tag::saved) == 0);
    CHECK(ledger().live() == before - 2 * 16 + 2 * 16 + x.grad().bytes());
  }
  CHECK(ledger().live(Tag::temporaries) == 2 * 16 + x.bytes());
}

TEST_CASE_METHOD(LedgerScope, "each pass within a pass over one checkpoint recomputes it") {
  const int n = GENERATE(2, 17, 300);
  const auto gradient_of = [n](bool plain) {
    const Tensor x = testing::values_off_zero({3}, 1).set_requires_grad(true);
    int runs = 0;
    Tensor middle;
    const Function f = [&](const Tensors& in) -> Tensors {
      const Tensor h = tanh(tanh(in[0]));
      if (++runs == 1) middle = h;
      return {tanh(tanh(h))};
    };
    const Tensor loss = sum((plain ? f({x}) : checkpoint(f, {x}))[0]);
    const std::int64_t before = ledger().live(Tag::saved);
    int depth = 0;
    middle.register_hook([&](const Tensor&) -> Tensor {
      ++depth;
      if (depth < n) backward(loss, {.retain_graph = true});
      // In each pass around, the results of the first two are still to be read.
      if (!plain) CHECK(ledger().live(Tag::saved) == before + 2 * x.bytes() * depth);
      --depth;
      return {};
    });
    middle = Tensor();
    backward(loss, {.retain_graph = true});
    CHECK(runs == (plain ? 1 : 1 + n));
    CHECK(ledger().live(Tag::saved) == before);
    return x.grad();
  };
  CHECK(same_bits(gradient_of(false), gradient_of(true)));
}

TEST_CASE("no two groups and passes of a thread have one number") {
  std::set<std::uint64_t> numbers;
  // Both are counted from the beginning of a thread.
  std::thread([&] {
    ambient() = Ambient{};
    const Tensor x = variable({0.5, -1}, {2});
    Tensor(x).register_hook([&](const Tensor&) {
      numbers.insert(current_backward());
      return Tensor();
    });
    for (int i = 0; i < 3; ++i) {
      backward(sum(x));
      const BackwardGroup group;
      numbers.insert(group.id());
    }
  }).join();
  CHECK(numbers.size() == 6);
  CHECK_FALSE(numbers.contains(0));
}

}  // namespace rematch
