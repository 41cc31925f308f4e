#include "engine/ops/rms_norm.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>

#include "engine/testing/differentiate.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using testing::differentiate;
using testing::LedgerScope;
using testing::values_off_zero;

}  // namespace

TEST_CASE_METHOD(LedgerScope, "a row of zeros stays zero, and its gradient is finite") {
  const DType dtype = GENERATE(DType::float32, DType::float64);
  const Tensor x = Tensor::zeros({1, 5}, dtype).set_requires_grad(true);
  const Tensor weight = values_off_zero({5}, 2, dtype).set_requires_grad(true);
  const Tensor y = rms_norm(x, weight);
  for (const double v : y.to_vector()) CHECK(v == 0);
  differentiate(y);
  for (const double v : x.grad().to_vector()) CHECK(std::isfinite(v));
  for (const double v : weight.grad().to_vector()) CHECK(v == 0);
}

}  // namespace rematch
