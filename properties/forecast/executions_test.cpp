#include <bit>
#include <catch2/catch_test_macros.hpp>

#include "properties/forecast/testing/small_cases.h"

namespace rematch {
namespace {

using namespace testing;
using Counts = std::vector<int>;

constexpr Variant kBoth[] = {Variant::reentrant, Variant::non_reentrant};

SegmentSpec without_early_stop(SegmentSpec s) {
  s.choice.early_stop = false;
  for (SegmentSpec& inner : s.nested) inner = without_early_stop(inner);
  return s;
}

SegmentSpec same_range(int depth, int end, Variant variant) {
  if (depth == 1) return segment(0, end, variant);
  return segment(0, end, variant, {same_range(depth - 1, end, variant)});
}

SegmentSpec halved(int begin, int end, Variant variant) {
  if (end - begin == 1) return segment(begin, end, variant);
  const int middle = begin + (end - begin) / 2;
  return segment(begin, end, variant,
                 {halved(begin, middle, variant), halved(middle, end, variant)});
}

TEST_CASE("a sequential plan runs the first (k - 1) * floor(n / k) layers twice, the rest once") {
  for (const Variant variant : kBoth) {
    for (int n = 1; n <= 12; ++n) {
      for (int k = 1; k <= n; ++k) {
        Case c = tanh_chain(n);
        c.plan.sequential = SequentialSpec{k, true, {}};
        c.plan.sequential->choice.variant = variant;
        Counts expected(static_cast<std::size_t>(n), 1);
        for (int i = 0; i < (k - 1) * (n / k); ++i) expected[static_cast<std::size_t>(i)] = 2;
        INFO("n " << n << ", k " << k);
        CHECK(forecast_of(c).executions == expected);

        c.plan.sequential->last_stored = false;
        CHECK(forecast_of(c).executions == Counts(static_cast<std::size_t>(n), 2));
      }
    }
  }
}

TEST_CASE("nested reentrant checkpoints run a layer at depth d in all d + 1 times") {
  for (int depth = 1; depth <= 6; ++depth) {
    Case c = tanh_chain(2);
    c.plan.segments = {same_range(depth, 2, Variant::reentrant)};
    CHECK(forecast_of(c).executions == Counts(2, depth + 1));
  }
}

TEST_CASE("nested non-reentrant checkpoints run a layer d + 1 times only without early stop") {
  for (int depth = 1; depth <= 6; ++depth) {
    Case c = tanh_chain(2);
    c.plan.segments = {same_range(depth, 2, Variant::non_reentrant)};
    CHECK(forecast_of(c).executions == Counts(2, 2));
    c.plan.segments = {without_early_stop(c.plan.segments[0])};
    CHECK(forecast_of(c).executions == Counts(2, depth + 1));
  }
}

TEST_CASE("recursive halving runs a layer once more for every level that recomputes it") {
  Case c = tanh_chain(8);
  c.plan.segments = {halved(0, 8, Variant::reentrant)};
  CHECK(forecast_of(c).executions == Counts(8, 5));

  // With early stop the recomputation of a level ends where its second half begins.
  c.plan.segments = {halved(0, 8, Variant::non_reentrant)};
  const Forecast f = forecast_of(c);
  for (unsigned i = 0; i < 8; ++i) CHECK(f.executions[i] == 2 + std::popcount(~i & 7u));
}

TEST_CASE("early stop ends a recomputation with the layer of the last saved tensor") {
  Case c = case_of({2, 3}, {dense(3), dense(3), joined("add", {0, 0})});
  c.plan.segments = {segment(1, 3, Variant::non_reentrant)};
  CHECK(forecast_of(c).executions == Counts{1, 2, 1});
  c.plan.segments = {without_early_stop(c.plan.segments[0])};
  CHECK(forecast_of(c).executions == Counts{1, 2, 2});
  c.plan.segments = {segment(1, 3, Variant::reentrant)};
  CHECK(forecast_of(c).executions == Counts{1, 2, 2});
}

TEST_CASE("a recomputation stops before an inner non-reentrant region but after a reentrant one") {
  // The inner inputs are the last thing saved: by one variant before, by the other after its run.
  Case c = tanh_chain(2);
  c.plan.segments = {
      segment(0, 2, Variant::non_reentrant, {segment(1, 2, Variant::non_reentrant)})};
  CHECK(forecast_of(c).executions == Counts{2, 2});
  c.plan.segments = {segment(0, 2, Variant::non_reentrant, {segment(1, 2, Variant::reentrant)})};
  CHECK(forecast_of(c).executions == Counts{2, 3});
}

}  // namespace
}  // namespace rematch
