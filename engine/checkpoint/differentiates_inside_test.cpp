// Functions that differentiate by themselves, in their forward and in every recomputation, and go
// on to draw and to change state.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <functional>
#include <stdexcept>
#include <vector>

#include "engine/autograd/backward.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/noise.h"
#include "engine/testing/ambient_snapshot.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using namespace testing;

/// How a function is called.
enum class Call { plain, non_reentrant, reentrant, nested, nested_reentrant };

Tensor call(Call how, const Function& f, const Tensor& x, const CheckpointOptions& options) {
  CheckpointOptions here = options;
  here.reentrant = how == Call::reentrant || how == Call::nested_reentrant;
  switch (how) {
    case Call::plain:
      return f({x})[0];
    case Call::non_reentrant:
    case Call::reentrant:
      return checkpoint(f, {x}, here)[0];
    case Call::nested:
    case Call::nested_reentrant:
      break;
  }
  const Function around = [f, options](const Tensors& in) { return checkpoint(f, in, options); };
  return checkpoint(around, {x}, here)[0];
}

/// Ways in which a function differentiates the graph inside it.
enum class Inside { grad, backward, twice, several_passes };

int number_of(Inside passes) {
  return passes == Inside::twice ? 2 : passes == Inside::several_passes ? 5 : 1;
}

/// How often slope_at() runs its function: in the forward, and in the recomputations of each pass.
/// Early stop spares the recomputation of a region around another; a reentrant one has the inner
/// forward in it.
int runs_of_slope(Inside passes, Call how) {
  if (how == Call::plain) return 1;
  return 1 + number_of(passes) * (how == Call::nested_reentrant ? 2 : 1);
}

/// The slope of a small graph at `x`, by the chosen passes, whose region is called as `how` says.
Tensor slope_at(const Tensor& x, Inside passes, Call how, int& runs) {
  // Under a reentrant forward nothing is recorded unless the function says so.
  const GradMode on(true);
  Tensor leaf = x.detach().set_requires_grad(true);
  const Function f = [&runs](const Tensors& in) -> Tensors {
    ++runs;
    return {mul(rrelu(tanh(in[0]), 0.75, 1.25), in[0])};
  };
  const Tensor y = call(how, f, leaf, {});
  const Tensors root{sum(y)};
  const bool reentrant = how == Call::reentrant || how == Call::nested_reentrant;
  // The reentrant variant takes no partial passes.
  if (passes == Inside::grad && !reentrant) return grad(root, Tensors{leaf})[0];
  for (int i = 0; i < number_of(passes); ++i) backward(root[0], {.retain_graph = true});
  return leaf.grad().detach();
}

struct SlopeOutcome {
  Tensor gradient;
  std::vector<Generator> streams;
  double state = 0;
  int updates = 0;
  int slopes = 0;
  int runs_of_slopes = 0;
};

SlopeOutcome train(Call outer, Call inner, Inside passes, const CheckpointOptions& options,
                   bool partial = false) {
  ambient().streams = Streams(7);
  SlopeOutcome o;
  const Function f = [&](const Tensors& in) -> Tensors {
    const AmbientSnapshot before = AmbientSnapshot::now();
    const Tensor h = rrelu(tanh(in[0]), 0.75, 1.25);
    o.slopes += 2;
    const Tensor slope = slope_at(h, passes, inner, o.runs_of_slopes);
    CHECK(apart_from_draws(AmbientSnapshot::now()) == apart_from_draws(before));
    // State that a layer carries along, as running statistics are.
    if (!ambient().recomputing) {
      o.state = 0.5 * o.state + slope.at(0);
      ++o.updates;
    }
    const int late = ambient().streams.add("late");
    const Tensor y = rrelu(tanh(mul(h, slope)), 0.75, 1.25, {.stream = late});
    return {tanh(add(y, slope_at(y, passes, inner, o.runs_of_slopes)))};
  };
  const Tensor x = variable({-0.5, -0.25}, {2});
  const Tensors root{sum(call(outer, f, x, options))};
  const AmbientSnapshot before = AmbientSnapshot::now();
  if (partial) {
    o.gradient = grad(root, Tensors{x})[0];
  } else {
    backward(root[0]);
    o.gradient = x.grad();
  }
  CHECK(AmbientSnapshot::now() == before);
  CHECK(testing::all_nonzero(o.gradient));
  o.streams = ambient().streams.states();
  // A recomputation that stops early may do so in its second slope.
  if (!options.early_stop) CHECK(o.runs_of_slopes == o.slopes * runs_of_slope(passes, inner));
  return o;
}

void check_same(const SlopeOutcome& got, const SlopeOutcome& expected) {
  CHECK(same_bits(got.gradient, expected.gradient));
  CHECK(got.streams == expected.streams);
  CHECK(got.state == expected.state);
  CHECK(got.updates == 1);
}

// Two functions: one line of GENERATE has one value at a time.
Call outer_calls() {
  return GENERATE(Call::non_reentrant, Call::reentrant, Call::nested, Call::nested_reentrant);
}
Call inner_calls() {
  return GENERATE(Call::non_reentrant, Call::reentrant, Call::nested, Call::nested_reentrant);
}
Inside insides() {
  return GENERATE(Inside::grad, Inside::backward, Inside::twice, Inside::several_passes);
}

}  // namespace

TEST_CASE_METHOD(LedgerScope,
                 "a function that differentiates inside trains as the plain run does") {
  const Call outer = outer_calls();
  const Inside passes = insides();
  const bool early_stop = GENERATE(true, false);
  const DeterminismCheck check =
      GENERATE(DeterminismCheck::none, DeterminismCheck::metadata, DeterminismCheck::values);
  CAPTURE(static_cast<int>(outer), static_cast<int>(passes), early_stop, static_cast<int>(check));
  check_same(train(outer, Call::plain, passes, {.early_stop = early_stop, .determinism = check}),
             train(Call::plain, Call::plain, passes, {}));
}

TEST_CASE_METHOD(LedgerScope, "a function may differentiate through regions inside it") {
  const Call outer = outer_calls();
  const Call inner = inner_calls();
  const Inside passes = insides();
  const bool early_stop = GENERATE(true, false);
  // A partial pass around is no business of the passes inside.
  const bool partial = GENERATE(false, true);
  if (partial && (outer == Call::reentrant || outer == Call::nested_reentrant)) return;
  CAPTURE(static_cast<int>(outer), static_cast<int>(inner), static_cast<int>(passes), early_stop,
          partial);
  check_same(train(outer, inner, passes, {.early_stop = early_stop}, partial),
             train(Call::plain, Call::plain, passes, {}));
}

TEST_CASE_METHOD(LedgerScope, "an error in a pass inside a function leaves it as it was") {
  const Call outer = outer_calls();
  const Call inner = inner_calls();
  const int failing = GENERATE(1, 2, 3);
  // In a hook, or in the recomputation of the region inside.
  const bool by_hook = GENERATE(false, true);
  CAPTURE(static_cast<int>(outer), static_cast<int>(inner), failing, by_hook);
  const auto run = [&](Call o, Call i, int fails) {
    ambient().streams = Streams(7);
    int runs = 0;
    const Function f = [&](const Tensors& in) -> Tensors {
      const Tensor h = rrelu(tanh(in[0]), 0.75, 1.25);
      int ignored = 0;
      const Tensor slope = slope_at(h, Inside::backward, i, ignored);
      // A further pass, which one run does not bring to its end.
      const bool throws = ++runs == fails;
      {
        const GradMode on(true);
        Tensor leaf = h.detach().set_requires_grad(true);
        leaf.register_hook([=](const Tensor&) -> Tensor {
          if (throws && by_hook) throw std::domain_error("mine");
          return {};
        });
        bool in_pass = false;
        const Function inside = [&](const Tensors& t) -> Tensors {
          if (throws && in_pass && !by_hook) throw std::domain_error("mine");
          return {tanh(t[0])};
        };
        const Tensor z = sum(call(i, inside, leaf, {}));
        in_pass = true;
        const AmbientSnapshot before = AmbientSnapshot::now();
        if (throws) {
          CHECK_THROWS_AS(backward(z), std::domain_error);
        } else {
          backward(z);
        }
        CHECK(AmbientSnapshot::now() == before);
      }
      return {tanh(mul(h, slope))};
    };
    const Tensor x = variable({-0.5, -0.25}, {2});
    const Tensor y = call(o, f, x, {.early_stop = false});
    backward(sum(y));
    return x.grad();
  };
  CHECK(same_bits(run(outer, inner, failing), run(Call::plain, Call::plain, 0)));
}

}  // namespace rematch
