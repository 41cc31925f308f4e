#include "properties/case/policy.h"

#include <catch2/catch_test_macros.hpp>

#include "properties/forecast/testing/small_cases.h"

namespace rematch {

TEST_CASE("the index of a policy counts ops of that name in their segment") {
  using namespace testing;
  LayerSpec off = layer("dropout");
  off.p = 0;
  Case c = case_of({2, 3}, {layer("dropout"), off, layer("dropout")});
  c.plan.segments = {segment(0, 3, Variant::non_reentrant)};
  c.plan.segments[0].choice.keep = {{"dropout", 1}};
  CHECK_FALSE(kept_by_policy(c, 0));
  CHECK_FALSE(kept_by_policy(c, 1));
  CHECK(kept_by_policy(c, 2));
  c.plan.segments[0].begin = 1;
  CHECK_FALSE(kept_by_policy(c, 2));
}

}  // namespace rematch
