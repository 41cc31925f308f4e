// Checkpointing under autocast: a region is recomputed in the precision in which it ran, and
// neither the ops nor what is saved depend on what the cache of casts holds.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <optional>
#include <vector>

#include "engine/ambient/ambient_scope.h"
#include "engine/autograd/autocast.h"
#include "engine/autograd/backward.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/conv2d.h"
#include "engine/ops/dropout.h"
#include "engine/ops/linear.h"
#include "engine/ops/view.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using Catch::Matchers::ContainsSubstring;
using testing::leaf;
using testing::LedgerScope;
using testing::same_bits;
using testing::values_off_zero;

/// How a step is run; plain when `checkpointed` is false.
struct CastWay {
  bool checkpointed = false;
  bool reentrant = false;
  int depth = 1;
  bool cache = true;
  /// The cache holds the weights before the first region begins.
  bool warm = false;
  /// Backward runs before the scope of autocast ends.
  bool inside = false;
  bool early_stop = true;
};

struct CastOutcome {
  Tensor y;
  Tensor x;
  Tensor w;
  Tensor b;
  Tensor filter;
  std::vector<Generator> streams;
};

Tensors call(const CastWay& way, const Function& f, const Tensors& in) {
  if (!way.checkpointed) return f(in);
  CheckpointOptions options{.reentrant = way.reentrant};
  options.early_stop = way.early_stop;
  Function nested = f;
  for (int i = 1; i < way.depth; ++i) {
    nested = [inner = nested, options](const Tensors& t) { return checkpoint(inner, t, options); };
  }
  return checkpoint(nested, in, options);
}

/// A convolution, then `regions` regions that use one weight twice each. `prior`: gradients are
/// there already.
CastOutcome step(const CastWay& way, int regions = 1, bool prior = false) {
  const AmbientScope fresh(std::make_shared<Ledger>(), 7);
  const Tensor x = leaf({2, 1, 3, 3}, 1);
  Tensor w = leaf({4, 4}, 2);
  const Tensor b = leaf({4}, 3);
  const Tensor filter = leaf({1, 1, 2, 2}, 4);
  if (prior) w.set_grad(values_off_zero({4, 4}, 5, DType::float32));
  const Function convolved = [&](const Tensors& in) -> Tensors {
    return {flatten(relu(conv2d(in[0], filter)))};
  };
  const Function block = [&](const Tensors& in) -> Tensors {
    return {linear(dropout(tanh(linear(in[0], w, b)), 0.5), w, b)};
  };
  std::optional<AutocastScope> scope(std::in_place, true, way.cache);
  if (way.warm) linear(values_off_zero({1, 4}, 6, DType::float32), w, b);
  Tensors h = call(way, convolved, {x});
  for (int i = 0; i < regions; ++i) h = call(way, block, h);
  const Tensor loss = sum(mul(h[0], h[0]));
  if (!way.inside) scope.reset();
  backward(loss);
  return {h[0].detach(), x.grad(), w.grad(), b.grad(), filter.grad(), ambient().streams.states()};
}

void check_same(const CastOutcome& got, const CastOutcome& want) {
  CHECK(got.y.dtype() == DType::bfloat16);
  CHECK(same_bits(got.y, want.y));
  CHECK(same_bits(got.x, want.x));
  CHECK(same_bits(got.w, want.w));
  CHECK(same_bits(got.b, want.b));
  CHECK(same_bits(got.filter, want.filter));
  CHECK(got.streams == want.streams);
}

}  // namespace

TEST_CASE("a checkpointed step under autocast is a rematch of the plain one") {
  CastWay way{.checkpointed = true};
  way.reentrant = GENERATE(false, true);
  way.depth = GENERATE(1, 2, 3);
  way.cache = GENERATE(false, true);
  way.warm = GENERATE(false, true);
  way.inside = GENERATE(false, true);
  way.early_stop = GENERATE(false, true);
  check_same(step(way), step({}));
}

TEST_CASE("one weight in two regions gets the plain run's gradient, also onto one that is there") {
  CastWay way{.checkpointed = true};
  way.reentrant = GENERATE(false, true);
  way.cache = GENERATE(false, true);
  way.inside = GENERATE(false, true);
  const int regions = GENERATE(1, 2);
  const bool prior = GENERATE(false, true);
  // Each reentrant recomputation adds its share of a tied gradient by itself: another order of the
  // sum.
  if (way.reentrant && regions == 2 && prior) return;
  check_same(step(way, regions, prior), step({}, regions, prior));
}

TEST_CASE_METHOD(LedgerScope, "a weight changed since the forward is named, not its copy") {
  const bool reentrant = GENERATE(false, true);
  const bool inside = GENERATE(false, true);
  Tensor w = leaf({4, 4}, 2);
  w.set_name("fc.weight");
  const Function f = [&](const Tensors& in) -> Tensors { return {tanh(linear(in[0], w))}; };
  std::optional<AutocastScope> scope(std::in_place);
  const Tensor loss = sum(checkpoint(f, {leaf({3, 4}, 1)}, {.reentrant = reentrant})[0]);
  if (!inside) scope.reset();
  {
    const GradMode off(false);
    scale_(w, 2);
  }
  CHECK_THROWS_WITH(backward(loss),
                    ContainsSubstring("\"fc.weight\" (float32 [4, 4]), operand 1 of linear") &&
                        ContainsSubstring("version 0 expected, got 1"));
}

TEST_CASE_METHOD(LedgerScope, "an input changed since the forward is named, though it was cast") {
  const bool reentrant = GENERATE(false, true);
  const Tensor w = leaf({4, 4}, 2);
  Tensor captured = values_off_zero({3, 4}, 3, DType::float32);
  const Function f = [&](const Tensors& in) -> Tensors {
    return {add(in[0], linear(captured, w))};
  };
  CheckpointOptions options{.reentrant = reentrant};
  options.early_stop = false;
  const AutocastScope scope;
  const Tensor loss = sum(checkpoint(f, {leaf({3, 4}, 1)}, options)[0]);
  scale_(captured, 2);
  CHECK_THROWS_WITH(backward(loss), ContainsSubstring("operand 0 of linear (float32 [3, 4])"));
}

TEST_CASE_METHOD(LedgerScope,
                 "a checkpointed region under autocast holds its input and the cache") {
  const bool reentrant = GENERATE(false, true);
  const bool cache = GENERATE(false, true);
  const bool inside = GENERATE(false, true);
  const Tensor w = leaf({4, 4}, 2);
  const Function f = [&](const Tensors& in) -> Tensors {
    return {linear(tanh(linear(in[0], w)), w)};
  };
  const Tensor x = leaf({3, 4}, 1);
  const std::int64_t base = ledger().live();
  const std::int64_t cached = cache ? 2 * 4 * 4 : 0;
  std::optional<AutocastScope> scope(std::in_place, true, cache);
  Tensors y = checkpoint(f, {scale(x, 1)}, {.reentrant = reentrant});
  CHECK(ledger().live(Tag::saved) == 4 * 3 * 4);
  CHECK(ledger().live() == base + 4 * 3 * 4 + cached + 2 * 3 * 4);
  Tensor loss = sum(y[0]);
  y.clear();
  if (!inside) scope.reset();
  CHECK(ledger().live() == base + 4 * 3 * 4 + (inside ? cached : 0) + 4);
  backward(loss);
  CHECK(ledger().live(Tag::saved) == 0);
  // The recomputation's own cache is gone, and that of the scope as it was.
  CHECK(ledger().live() == base + (inside ? cached : 0) + 4 + ledger().live(Tag::gradients));
}

TEST_CASE_METHOD(LedgerScope, "a region that is given bfloat16 holds and recomputes bfloat16") {
  const bool reentrant = GENERATE(false, true);
  const Tensor w = leaf({4, 4}, 2);
  const Function f = [&](const Tensors& in) -> Tensors {
    return {mul(tanh(linear(in[0], w)), in[0])};
  };
  const auto gradients = [&](bool checkpointed) {
    const Tensor x = leaf({3, 4}, 1);
    Tensor(w).set_grad({});
    Tensor loss;
    {
      const AutocastScope on;
      const Tensor h = linear(x, w);
      const std::int64_t before = ledger().live(Tag::saved);
      const Tensor y = (checkpointed ? checkpoint(f, {h}, {.reentrant = reentrant}) : f({h}))[0];
      if (checkpointed) CHECK(ledger().live(Tag::saved) == before + 2 * 3 * 4);
      loss = sum(y);
    }
    backward(loss);
    return Tensors{x.grad(), w.grad()};
  };
  const Tensors expected = gradients(false);
  const Tensors got = gradients(true);
  CHECK(same_bits(got[0], expected[0]));
  CHECK(same_bits(got[1], expected[1]));
}

}  // namespace rematch
