#include "engine/ops/join.h"

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <span>
#include <stdexcept>
#include <vector>

#include "engine/autograd/backward.h"
#include "engine/ops/arithmetic.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using namespace testing;

/// Row by row, what belongs to `a` and then what belongs to `b`.
std::vector<double> joined(const Tensor& a, const Tensor& b) {
  std::vector<double> all;
  for (std::int64_t i = 0, rows = a.shape()[0]; i < rows; ++i) {
    for (const Tensor* t : {&a, &b}) {
      const std::vector<double> values = t->to_vector();
      const std::int64_t length = t->elements() / rows;
      all.insert(all.end(), values.begin() + i * length, values.begin() + (i + 1) * length);
    }
  }
  return all;
}

TEST_CASE_METHOD(LedgerScope, "rows are joined and split at every rank, and so are gradients") {
  const std::int64_t left = GENERATE(1, 2, 5);
  const std::int64_t right = GENERATE(1, 3);
  const std::size_t rank = GENERATE(2U, 3U, 4U, 5U);
  // Which of the other extents are 1.
  for (unsigned ones = 0; ones < 1U << rank; ++ones) {
    std::array<std::int64_t, Shape::kMaxRank> dims{3, 0, 2, 4, 5};
    for (std::size_t i = 0; i < rank; ++i) dims[i] = (ones >> i & 1U) != 0 ? 1 : dims[i];
    const auto values = [&](std::int64_t columns, std::uint64_t seed) {
      dims[1] = columns;
      return values_off_zero(Shape(std::span<const std::int64_t>(dims.data(), rank)), seed);
    };
    const Tensor a = values(left, 1).set_requires_grad(true);
    const Tensor b = values(right, 2).set_requires_grad(true);
    CAPTURE(to_string(a.shape()), to_string(b.shape()));
    const Tensor whole = concat(a, b);
    REQUIRE(whole.to_vector() == joined(a, b));
    const Tensor factors = values(left + right, 3);
    const Tensor product = mul(whole, factors);
    const auto parts = split(product, left);
    REQUIRE(joined(parts[0], parts[1]) == product.to_vector());
    const Tensors gradients{values(left, 4), values(right, 5)};
    backward(parts, gradients);
    const std::vector<double> all = joined(gradients[0], gradients[1]);
    const Tensor expected = mul(factors, Tensor::from(all, factors.shape(), a.dtype()));
    REQUIRE(joined(a.grad(), b.grad()) == expected.to_vector());
    for (std::size_t d = 0; d < rank; d += d == 0 ? 2 : 1) {
      ++dims[d];
      REQUIRE_THROWS_AS(concat(a, values(right, 6)), std::invalid_argument);
      --dims[d];
    }
  }
}

}  // namespace
}  // namespace rematch
