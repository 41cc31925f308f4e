#include "engine/ops/group_norm.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <vector>

#include "engine/testing/differentiate.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using testing::differentiate;
using testing::leaf;
using testing::LedgerScope;

DType dtypes() { return GENERATE(DType::float32, DType::float64); }

/// `parameter`[c] beside each element of a tensor of `shape`, which has c channels.
Tensor spread(const Tensor& parameter, const Shape& shape) {
  std::vector<double> values;
  const std::int64_t run = shape.elements() / (shape[0] * shape[1]);
  for (std::int64_t i = 0; i < shape.elements(); ++i) {
    values.push_back(parameter.at(i / run % shape[1]));
  }
  return Tensor::from(values, shape, parameter.dtype());
}

}  // namespace

TEST_CASE_METHOD(LedgerScope, "a group of one value is its bias, and has no gradient") {
  const DType dtype = dtypes();
  const Tensor x = leaf({4, 3}, 1, dtype);
  const Tensor weight = leaf({3}, 2, dtype);
  const Tensor bias = leaf({3}, 3, dtype);
  const Tensor y = group_norm(x, 3, weight, bias);
  CHECK(y.to_vector() == spread(bias, {4, 3}).to_vector());
  differentiate(y);
  for (const Tensor& gradient : {x.grad(), weight.grad()}) {
    for (const double v : gradient.to_vector()) CHECK(v == 0);
  }
}

}  // namespace rematch
