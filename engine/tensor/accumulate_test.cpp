#include "engine/tensor/accumulate.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <vector>

#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using namespace testing;
using Values = std::vector<double>;

}  // namespace

TEST_CASE_METHOD(LedgerScope, "a gradient is added to one of its own shape and dtype alone") {
  Tensor sum = tensor({1, 2}, {2});
  add_into(sum, tensor({3, 5}, {2}));
  CHECK(sum.to_vector() == Values{4, 7});
  CHECK(sum.version() == 0);
  CHECK_THROWS_WITH(add_into(sum, tensor({3, 5}, {1, 2})),
                    "[backward] gradient of shape [2] float64 expected, got [1, 2] float64");
  CHECK_THROWS_WITH(add_into(sum, tensor({3, 5}, {2}, DType::float32)),
                    "[backward] gradient of shape [2] float64 expected, got [2] float32");
  CHECK(sum.to_vector() == Values{4, 7});
}

TEST_CASE_METHOD(LedgerScope, "a tensor is owned alone while one handle leads to its memory") {
  const Tensor t = tensor({1, 2}, {2});
  CHECK(owned_alone(t));
  {
    const Tensor handle = t;
    CHECK_FALSE(owned_alone(t));
    CHECK_FALSE(owned_alone(handle));
  }
  CHECK(owned_alone(t));
  {
    const Tensor alias = reshape_alias(t, {2, 1});
    CHECK_FALSE(owned_alone(t));
    CHECK_FALSE(owned_alone(alias));
    CHECK(alias.shape() == Shape{2, 1});
    CHECK(alias.dtype() == t.dtype());
    CHECK(alias.raw() == t.raw());
  }
  CHECK(owned_alone(t));
}

}  // namespace rematch
