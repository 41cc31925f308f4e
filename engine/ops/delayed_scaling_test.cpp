#include "engine/ops/delayed_scaling.h"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

#include "engine/ambient/ambient.h"
#include "engine/autograd/backward.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/cast.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using testing::LedgerScope;
using testing::tensor;
using testing::variable;
using Values = std::vector<double>;

TEST_CASE_METHOD(LedgerScope, "a forward is scaled by what the forwards before it saw") {
  Tensor scale = tensor({2}, {1});
  CHECK(delayed_scaling(tensor({1, -6, 4}, {3}), scale, true).to_vector() == Values{0.5, -3, 2});
  CHECK(scale.item() == 4);  // halfway from 2 to 6
  CHECK(delayed_scaling(tensor({1, -2}, {2}), scale, true).to_vector() == Values{0.25, -0.5});
  CHECK(scale.item() == 3);
}

TEST_CASE_METHOD(LedgerScope, "in evaluation the scale stays") {
  Tensor scale = tensor({2}, {1});
  CHECK(delayed_scaling(tensor({1, -6}, {2}), scale, false).to_vector() == Values{0.5, -3});
  CHECK(scale.item() == 2);
}

TEST_CASE_METHOD(LedgerScope, "a gradient is divided by the scale that its forward read") {
  Tensor scale = tensor({2}, {1});
  const Tensor x = variable({1, -6}, {2});
  const Tensor y = delayed_scaling(x, scale, true);
  delayed_scaling(x, scale, true);
  backward(sum(y));
  CHECK(x.grad().to_vector() == Values{0.5, 0.5});
}

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

TEST_CASE_METHOD(LedgerScope, "a scale counts as changed once it moved on") {
  Tensor scale = tensor({2}, {1});
  const Tensor x = tensor({1, 2}, {2});
  const std::uint64_t before = scale.version();
  delayed_scaling(x, scale, false);
  CHECK(scale.version() == before);
  delayed_scaling(x, scale, true);
  CHECK(scale.version() > before);
}

TEST_CASE_METHOD(LedgerScope, "it keeps the output and the scale that was read, no more") {
  Tensor scale = tensor({2}, {1});
  const Tensor x = variable({1, 2, 3, 4}, {4});
  const std::int64_t before = ambient().ledger->live();
  const Tensor y = delayed_scaling(x, scale, true);
  CHECK(ambient().ledger->live() - before == 4 * 8 + 8);
}

}  // namespace
}  // namespace rematch
