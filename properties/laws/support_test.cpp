#include "properties/laws/support.h"

#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <utility>
#include <vector>

#include "properties/forecast/testing/small_cases.h"
#include "properties/laws/testing/synthetic.h"

namespace rematch {

TEST_CASE("a distance is relative to the largest number expected, or to 2^-10") {
  using Values = std::vector<double>;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  CHECK(distance(Values{1, -4}, Values{1, -3}) == 0.25);
  CHECK(distance(Values{1, -4}, Values{3, -4}) == 0.5);
  CHECK(distance(Values{0x1p-20}, Values{0}) == 0x1p-10);
  CHECK(distance(Values{0.0}, Values{-0.0}) == 0);
  CHECK(distance(Values{kNaN, kInfinity, 1}, Values{kNaN, kInfinity, 1}) == 0);
  CHECK(distance(Values{kInfinity, 2}, Values{kInfinity, 1}) == 0.5);
  CHECK(distance(Values{1}, Values{kNaN}) == kInfinity);
  CHECK(distance(Values{1}, Values{kInfinity}) == kInfinity);
  CHECK(distance(Values{-kInfinity}, Values{kInfinity}) == kInfinity);
}

TEST_CASE("what later forwards save is not known where a draw or values may decide it") {
  const auto judged = [](LayerSpec layer, bool measured, int microbatches, bool train = true) {
    Case c = testing::synthetic_case();
    c.layers.push_back(std::move(layer));
    c.protocol.train = train;
    c.protocol.steps = 1;
    c.protocol.microbatches = microbatches;
    testing::Synthetic s(c);
    s.forecast.measured = measured;
    CHECK(saves_may_vary(s.evidence()) != knows_saved_bytes(s.evidence()));
    CHECK((s.verdict("saved-at-most") == Verdict::not_applicable) == saves_may_vary(s.evidence()));
    return saves_may_vary(s.evidence());
  };
  LayerSpec skips = testing::layer("stochastic_depth");
  skips.p = 0.5;
  CHECK(judged(skips, true, 2));
  CHECK_FALSE(judged(skips, true, 1));
  CHECK_FALSE(judged(skips, false, 2));
  CHECK_FALSE(judged(skips, true, 2, false));
  skips.eval = true;
  CHECK_FALSE(judged(skips, true, 2));
  skips = testing::layer("stochastic_depth");
  CHECK_FALSE(judged(skips, true, 2));
  const LayerSpec exits = testing::layer("early_exit");
  CHECK(judged(exits, true, 2));
  CHECK(judged(exits, true, 2, false));
  CHECK_FALSE(judged(exits, true, 1));
}

}  // namespace rematch
