// Many backwards over one checkpoint, and many checkpoints that wait for theirs.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <numeric>
#include <vector>

#include "engine/autograd/backward.h"
#include "engine/autograd/saved_tensor.h"
#include "engine/checkpoint/backward_group.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/dropout.h"
#include "engine/testing/ambient_snapshot.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using testing::AmbientSnapshot;
using testing::LedgerScope;
using testing::same_bits;
using testing::values_off_zero;

/// A layer that draws, with two outputs, a weight that all its uses share and a count of its runs.
struct Layer {
  Tensor weight = values_off_zero({3}, 9).set_requires_grad(true);
  int runs = 0;

  Tensors operator()(const Tensors& in) {
    ++runs;
    return {tanh(mul(dropout(tanh(in[0]), 0.25), weight)), tanh(scale(in[0], 2))};
  }
  Function function() {
    return [this](const Tensors& in) { return (*this)(in); };
  }
};

enum class Variant { plain, non_reentrant, reentrant };

Tensors run(Layer& layer, const Tensor& x, Variant variant) {
  if (variant == Variant::plain) return layer({x});
  return checkpoint(layer.function(), {x}, {.reentrant = variant == Variant::reentrant});
}

/// n forwards, then a backward each in this order. Returns all gradients.
Tensors walk_in_order(const std::vector<std::size_t>& order, Variant variant) {
  ambient().streams.seed(7);
  Layer layer;
  Tensors x;
  Tensors losses;
  for (std::size_t i = 0; i < order.size(); ++i) {
    x.push_back(values_off_zero({3}, i).set_requires_grad(true));
    losses.push_back(sum(run(layer, x.back(), variant)[0]));
  }
  const AmbientSnapshot before = AmbientSnapshot::now();
  for (const std::size_t i : order) {
    backward(losses[i]);
    CHECK(AmbientSnapshot::now() == before);
    losses[i] = Tensor();
  }
  CHECK(layer.runs == static_cast<int>(order.size()) * (variant == Variant::plain ? 1 : 2));
  Tensors gradients{layer.weight.grad()};
  for (const Tensor& t : x) gradients.push_back(t.grad());
  return gradients;
}

bool same_in_order(const std::vector<std::size_t>& order, Variant variant) {
  const Tensors got = walk_in_order(order, variant);
  const Tensors expected = walk_in_order(order, Variant::plain);
  return std::equal(got.begin(), got.end(), expected.begin(), expected.end(), same_bits);
}

}  // namespace

TEST_CASE_METHOD(LedgerScope, "each of many backwards over a retained graph recomputes once") {
  const int n = GENERATE(2, 5, 17, 65, 257, 4097);
  const Variant variant = GENERATE(Variant::non_reentrant, Variant::reentrant);
  CAPTURE(n, static_cast<int>(variant));
  const auto gradients = [n](Layer& layer, Variant v) {
    ambient().streams.seed(7);
    const Tensor x = values_off_zero({3}, 1).set_requires_grad(true);
    // The second output lives on, and what is recomputed for it goes with each backward.
    const Tensors y = run(layer, x, v);
    const Tensor loss = sum(y[0]);
    const std::int64_t saved = ambient().ledger->live(Tag::saved);
    for (int i = 0; i < n; ++i) {
      backward(loss, {.retain_graph = true});
      if (ambient().ledger->live(Tag::saved) != saved) FAIL("backward " << i);
    }
    return Tensors{x.grad(), layer.weight.grad()};
  };
  Layer layer;
  Layer plain;
  const Tensors got = gradients(layer, variant);
  const Tensors expected = gradients(plain, Variant::plain);
  CHECK(same_bits(got[0], expected[0]));
  CHECK(same_bits(got[1], expected[1]));
  CHECK(layer.runs == 1 + n);
}

TEST_CASE_METHOD(LedgerScope,
                 "each pass within a pass over one checkpoint has its own recomputation") {
  const int n = GENERATE(2, 5, 17, 65, 300);
  const Tensor x = values_off_zero({3}, 1).set_requires_grad(true);
  const std::int64_t bytes = x.bytes();
  int runs = 0;
  Tensor middle;
  const Function f = [&](const Tensors& in) -> Tensors {
    const Tensor h = tanh(tanh(in[0]));
    if (++runs == 1) middle = h;
    return {tanh(tanh(h))};
  };
  const Tensor loss = sum(checkpoint(f, {x})[0]);
  const std::int64_t before = ledger().live(Tag::saved);
  int depth = 0;
  middle.register_hook([&](const Tensor&) -> Tensor {
    ++depth;
    // In each pass around, the results of the first two are still to be read.
    CHECK(ledger().live(Tag::saved) == before + 2 * bytes * depth);
    if (depth < n) backward(loss, {.retain_graph = true});
    CHECK(ledger().live(Tag::saved) == before + 2 * bytes * depth);
    --depth;
    return {};
  });
  middle = Tensor();
  backward(loss, {.retain_graph = true});
  CHECK(runs == 1 + n);
  CHECK(ledger().live(Tag::saved) == before);
  const Tensor plain = values_off_zero({3}, 1).set_requires_grad(true);
  const Tensor again = sum(tanh(tanh(tanh(tanh(plain)))));
  for (int i = 0; i < n; ++i) backward(again, {.retain_graph = true});
  CHECK(same_bits(x.grad(), plain.grad()));
}

TEST_CASE_METHOD(LedgerScope, "forwards that overlap are walked back in every order alike") {
  const std::size_t n = GENERATE(2U, 3U, 4U);
  const Variant variant = GENERATE(Variant::non_reentrant, Variant::reentrant);
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  do {
    CAPTURE(order, static_cast<int>(variant));
    CHECK(same_in_order(order, variant));
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE_METHOD(LedgerScope, "many forwards that overlap are walked back as plain ones are") {
  const std::size_t n = GENERATE(5U, 17U, 65U, 257U);
  const Variant variant = GENERATE(Variant::non_reentrant, Variant::reentrant);
  std::vector<std::size_t> order(n);
  // First to last, last to first, and in leaps: n is no multiple of the stride.
  const std::size_t stride = GENERATE(1U, 2U, 7U);
  const bool reverse = GENERATE(false, true);
  for (std::size_t i = 0; i < n; ++i) order[i] = i * stride % n;
  if (reverse) std::reverse(order.begin(), order.end());
  CAPTURE(n, stride, reverse, static_cast<int>(variant));
  CHECK(same_in_order(order, variant));
}

TEST_CASE_METHOD(LedgerScope, "many backwards of a group share one recomputation of a checkpoint") {
  const std::size_t n = GENERATE(2U, 5U, 17U, 65U, 257U);
  const bool reverse = GENERATE(false, true);
  int runs = 0;
  const Function f = [&](const Tensors& in) {
    ++runs;
    Tensors out;
    for (std::size_t i = 0; i < n; ++i) out.push_back(tanh(scale(in[0], 1.0 / (1.0 + i))));
    return out;
  };
  const Tensor x = values_off_zero({3}, 1).set_requires_grad(true);
  const Tensor plain = values_off_zero({3}, 1).set_requires_grad(true);
  Tensors outputs = checkpoint(f, {x});
  Tensors expected = f({plain});
  if (reverse) std::reverse(outputs.begin(), outputs.end());
  if (reverse) std::reverse(expected.begin(), expected.end());
  runs = 0;
  {
    const BackwardGroup group;
    for (const Tensor& y : outputs) backward(sum(y));
    CHECK(runs == 1);
  }
  for (const Tensor& y : expected) backward(sum(y));
  CHECK(same_bits(x.grad(), plain.grad()));
  CHECK(ledger().live(Tag::saved) == 0);
}

TEST_CASE_METHOD(LedgerScope, "a group lets go of what many checkpoints recomputed when it ends") {
  const int n = GENERATE(2, 5, 17, 65, 257, 4097);
  int runs = 0;
  const Function f = [&](const Tensors& in) -> Tensors {
    ++runs;
    return {tanh(in[0]), tanh(scale(in[0], 2))};
  };
  const Tensor x = values_off_zero({3}, 1).set_requires_grad(true);
  std::vector<Tensors> outputs;
  for (int i = 0; i < n; ++i) outputs.push_back(checkpoint(f, {x}));
  const std::int64_t before = ledger().live(Tag::saved);
  {
    const BackwardGroup group;
    // Retained, so that the checkpoints live on.
    for (const Tensors& y : outputs) backward(sum(y[0]), {.retain_graph = true});
    CHECK(runs == 2 * n);
    // Tensors recomputed for each second output.
    CHECK(ledger().live(Tag::saved) == before + n * x.bytes());
  }
  CHECK(ledger().live(Tag::saved) == before);
}

TEST_CASE_METHOD(LedgerScope, "a group ends with every callback, in order, and is over by then") {
  const int n = GENERATE(2, 5, 17, 65, 257, 65537);
  std::vector<int> ran;
  bool over = true;
  {
    BackwardGroup group;
    for (int i = 0; i < n; ++i) {
      group.at_end([&, i] {
        ran.push_back(i);
        over = over && BackwardGroup::current() == nullptr;
      });
    }
    CHECK(ran.empty());
  }
  std::vector<int> expected(static_cast<std::size_t>(n));
  std::iota(expected.begin(), expected.end(), 0);
  CHECK((ran == expected));
  CHECK(over);
}

TEST_CASE_METHOD(LedgerScope, "outside of a backward every access to a saved tensor recomputes") {
  const std::size_t n = GENERATE(2U, 5U, 17U, 65U);
  std::vector<SavedTensor> saved(n);
  int runs = 0;
  const Function f = [&](const Tensors& in) -> Tensors {
    ++runs;
    std::vector<SavedTensor> mine(n);
    for (std::size_t i = 0; i < n; ++i) mine[i].save(Tensor::full({1}, DType::float64, i));
    if (runs == 1) saved = std::move(mine);
    return in;
  };
  const Tensor x = values_off_zero({3}, 1).set_requires_grad(true);
  checkpoint(f, {x});
  const std::int64_t before = ledger().live();
  for (std::size_t i = 0; i < 2 * n; ++i) {
    CHECK(saved[i % n].get("mine").item() == static_cast<double>(i % n));
    CHECK(runs == static_cast<int>(i) + 2);
    CHECK(ledger().live() == before);
  }
}

}  // namespace rematch
