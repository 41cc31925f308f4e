#include <catch2/catch_test_macros.hpp>

#include "properties/forecast/testing/small_cases.h"

namespace rematch {
namespace {

using namespace testing;

/// Three uses of one weight, on an input that requires grad.
Case three_uses(std::vector<SegmentSpec> segments) {
  LayerSpec first = dense(3);
  first.bias = false;
  LayerSpec again = tied(3, 0);
  again.bias = false;
  Case c = case_of({2, 3}, {first, again, again});
  c.plan.segments = std::move(segments);
  c.protocol.input_requires_grad = true;
  return c;
}

bool exact(const Case& c) {
  const Forecast f = forecast_of(c);
  const bool all = f.exact_parameters == std::vector<bool>(f.exact_parameters.size(), true);
  CHECK(all == (f.exact_until_step >= c.protocol.steps));
  return all;
}

constexpr Variant R = Variant::reentrant;
constexpr Variant N = Variant::non_reentrant;

TEST_CASE(
    "a hook fires once for every reentrant region that uses the weight, else once a backward") {
  CHECK(forecast_of(three_uses({})).hooks == std::vector<int>{1});
  CHECK(forecast_of(three_uses({segment(0, 1, N), segment(1, 3, N)})).hooks == std::vector<int>{1});
  CHECK(forecast_of(three_uses({segment(0, 1, R), segment(1, 2, R), segment(2, 3, R)})).hooks ==
        std::vector<int>{3});
  CHECK(forecast_of(three_uses({segment(0, 2, R)})).hooks == std::vector<int>{2});
  CHECK(forecast_of(three_uses({segment(0, 3, R, {segment(0, 1, R)})})).hooks ==
        std::vector<int>{2});
  Case twice = three_uses({segment(0, 1, R)});
  twice.protocol.backwards = 2;
  CHECK(forecast_of(twice).hooks == std::vector<int>{4});
}

TEST_CASE("one use a reentrant region is exact on an empty gradient, inexact on an older one") {
  Case c = three_uses({segment(0, 1, R), segment(1, 2, R), segment(2, 3, R)});
  CHECK(exact(c));
  Case prior = c;
  prior.protocol.prior_gradients = true;
  CHECK_FALSE(exact(prior));
  Case batches = c;
  batches.protocol.microbatches = 2;
  CHECK_FALSE(exact(batches));
  Case backwards = c;
  backwards.protocol.backwards = 2;
  CHECK_FALSE(exact(backwards));
}

TEST_CASE("gradients that are kept from step to step become inexact in the second one") {
  Case c = three_uses({segment(0, 1, R), segment(1, 2, R), segment(2, 3, R)});
  c.protocol.steps = 3;
  CHECK(exact(c));
  c.protocol.zero_grad = false;
  CHECK_FALSE(exact(c));
  CHECK(forecast_of(c).exact_until_step == 1);
  // Prior gradients spoil the first step already.
  c.protocol.zero_grad = true;
  c.protocol.prior_gradients = true;
  CHECK(forecast_of(c).exact_until_step == 0);
}

TEST_CASE("two uses in an earlier region are summed apart, in a later one in the plain order") {
  // Plain: (g2 + g1) + g0.
  CHECK(exact(three_uses({segment(0, 1, R), segment(1, 3, R)})));
  CHECK_FALSE(exact(three_uses({segment(0, 2, R), segment(2, 3, R)})));
  CHECK(exact(three_uses({segment(0, 3, R)})));
}

TEST_CASE("uses outside of all regions arrive together, when the last of them is done") {
  // g2 and g0 outside: the region's g1 is added first, (g1 + (g2 + g0)).
  CHECK_FALSE(exact(three_uses({segment(1, 2, R)})));
  CHECK(exact(three_uses({segment(0, 1, R)})));
  CHECK(exact(three_uses({segment(2, 3, R)})) == false);
}

TEST_CASE("a non-reentrant plan is always exact") {
  Case c = three_uses({segment(0, 2, N, {segment(1, 2, N)}), segment(2, 3, N)});
  c.protocol.prior_gradients = true;
  c.protocol.backwards = 2;
  c.protocol.microbatches = 2;
  c.protocol.zero_grad = false;
  c.protocol.steps = 2;
  CHECK(exact(c));
}

TEST_CASE("a weight with one use is exact whatever its gradient held") {
  Case c = case_of({2, 3}, {dense(3), dense(3)});
  c.plan.segments = {segment(0, 2, R)};
  c.protocol.input_requires_grad = true;
  c.protocol.prior_gradients = true;
  c.protocol.backwards = 2;
  CHECK(exact(c));
}

TEST_CASE("a skip through reentrant segments of any depth is summed in the plain order") {
  Case c = case_of({2, 3}, {dense(3), dense(3), joined("add", {0, 0}), dense(3),
                            joined("add", {0, 0}), joined("add", {0, 0})});
  c.plan.segments = {segment(1, 3, R), segment(3, 5, R, {segment(3, 4, R)})};
  CHECK(exact(c));
  c.plan.segments = {segment(1, 6, R, {segment(1, 3, R), segment(4, 6, R)})};
  CHECK(exact(c));
}

TEST_CASE("two names of one tensor become two sums when they cross a reentrant boundary") {
  Case c = case_of({2, 3}, {dense(3), layer("duplicate"), dense(3), joined("add", {1, 1}),
                            joined("add", {1, 0})});
  c.protocol.input_requires_grad = true;
  CHECK(exact(c));
  // Plain: (g4 + g3) + g2. In the recomputation the first name gathers g4 + g2, the second has g3.
  c.plan.segments = {segment(2, 5, R)};
  CHECK_FALSE(exact(c));
  CHECK_FALSE(forecast_of(c).exact_inputs);
  c.plan.segments = {segment(2, 5, N)};
  CHECK(exact(c));

  // Two shares have one sum.
  c.layers.pop_back();
  c.plan.segments = {segment(2, 4, R)};
  CHECK(exact(c));
  CHECK(forecast_of(c).exact_inputs);
}

TEST_CASE("values are comparable unless a recomputation draws without its random state") {
  Case c = case_of({2, 3}, {dense(3), layer("dropout"), dense(3)});
  c.plan.segments = {segment(0, 2, N)};
  CHECK(forecast_of(c).values_comparable);
  c.plan.segments[0].choice.preserve_rng = false;
  CHECK_FALSE(forecast_of(c).values_comparable);
  CHECK_FALSE(forecast_of(c).may_fail);
  c.plan.segments[0].choice.determinism = CheckKind::values;
  CHECK(forecast_of(c).may_fail);
  // The recomputation of [0, 1) does not reach the dropout.
  c.plan.segments[0].end = 1;
  CHECK(forecast_of(c).values_comparable);
  CHECK_FALSE(forecast_of(c).may_fail);
}

}  // namespace
}  // namespace rematch
