#include "engine/ops/delayed_scaling.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <cmath>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <vector>

#include "engine/ops/arithmetic.h"
#include "engine/ops/cast.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using namespace testing;
using Values = std::vector<double>;

TEST_CASE_METHOD(LedgerScope, "NaN does not count towards the scale") {
  Tensor scale = tensor({2}, {1});
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(std::isnan(delayed_scaling(tensor({nan, 4}, {2}), scale, true).at(0)));
  CHECK(scale.item() == 3);
}

TEST_CASE_METHOD(LedgerScope, "a scale has one element, of the input's dtype") {
  Tensor pair = tensor({1, 2}, {2});
  CHECK_THROWS_AS(delayed_scaling(tensor({1}, {1}), pair, true), std::invalid_argument);
  Tensor scale = tensor({1}, {1}, DType::float32);
  CHECK_THROWS_AS(delayed_scaling(tensor({1}, {1}), scale, true), std::invalid_argument);
  const Tensor half = cast(tensor({3}, {1}, DType::float32), DType::bfloat16);
  CHECK(delayed_scaling(half, scale, true).dtype() == DType::float32);
}

/// All that float8 e4m3 has from 0 on, from the format's definition.
Values float8_numbers() {
  Values found;
  for (int bits = 0; bits < 0x7f; ++bits) {
    const int exponent = bits >> 3;
    const int fraction = bits & 7;
    found.push_back(exponent == 0 ? std::ldexp(fraction, -9)
                                  : std::ldexp(8 + fraction, exponent - 10));
  }
  return found;
}

/// Through float8 with a scale of 1.
double in_float8(double x, DType dtype) {
  Tensor history = Tensor::zeros({4}, dtype);
  return delayed_float8(tensor({x}, {1}, dtype), history, false).item();
}

TEST_CASE_METHOD(LedgerScope, "a number becomes the nearest float8, the even one of two") {
  const Values numbers = float8_numbers();
  REQUIRE(numbers.back() == 448);
  for (const DType dtype : {DType::float32, DType::float64}) {
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      CAPTURE(to_string(dtype), i);
      const double here = numbers[i];
      CHECK(in_float8(here, dtype) == here);
      CHECK(in_float8(-here, dtype) == -here);
      CHECK(std::signbit(in_float8(-here, dtype)));
      if (i + 1 == numbers.size()) continue;
      const double next = numbers[i + 1];
      const double middle = (here + next) / 2;
      const double part = (next - here) * 0x1p-12;
      CHECK(in_float8(middle, dtype) == (i % 2 == 0 ? here : next));
      CHECK(in_float8(middle - part, dtype) == here);
      CHECK(in_float8(middle + part, dtype) == next);
      CHECK(in_float8(-middle - part, dtype) == -next);
    }
    for (const double large : {449.0, 480.0, 1e30, std::numeric_limits<double>::infinity()}) {
      CHECK(in_float8(large, dtype) == 448);
      CHECK(in_float8(-large, dtype) == -448);
    }
    CHECK(std::isnan(in_float8(std::numeric_limits<double>::quiet_NaN(), dtype)));
  }
}

TEST_CASE_METHOD(LedgerScope, "a double is rounded to float before it is rounded to float8") {
  // Halfway between 1 and 1.125, and a bit more, which a float cannot tell.
  CHECK(in_float8(1.0625 + 0x1p-40, DType::float64) == 1);
}

TEST_CASE_METHOD(LedgerScope, "a history of float8 has four elements, of the input's dtype") {
  Tensor scale = tensor({1}, {1});
  CHECK_THROWS_WITH(delayed_float8(tensor({1}, {1}), scale, true),
                    "[delayed_scaling] history of shape [4] expected, got [1]");
  Tensor history = Tensor::zeros({4}, DType::float32);
  CHECK_THROWS_AS(delayed_float8(tensor({1}, {1}), history, true), std::invalid_argument);
  const Tensor half = cast(tensor({3}, {1}, DType::float32), DType::bfloat16);
  CHECK(delayed_float8(half, history, true).dtype() == DType::float32);
  CHECK(history.to_vector() == Values{0, 0, 0, 3});
}

}  // namespace
}  // namespace rematch
