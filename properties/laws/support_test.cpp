#include "properties/laws/support.h"

#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <vector>

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

}  // namespace rematch
