#include "engine/ops/rms_norm.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>
#include <vector>

#include "engine/autograd/backward.h"
#include "engine/ops/layer_norm.h"
#include "engine/testing/differentiate.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using testing::differentiate;
using testing::LedgerScope;
using testing::same_bits;
using testing::tensor;
using testing::values_off_zero;

/// x, then -x in each row: of mean 0 exactly, for the sums of both halves have the same roundings.
Tensor mirrored(std::int64_t rows, DType dtype) {
  constexpr std::int64_t kHalf = 16;
  const Tensor x = values_off_zero({rows, kHalf}, 1);
  std::vector<double> values;
  for (std::int64_t i = 0; i < 2 * rows * kHalf; ++i) {
    const double v = x.at(i / (2 * kHalf) * kHalf + i % kHalf);
    values.push_back(i / kHalf % 2 == 0 ? v : -v);
  }
  return Tensor::from(values, {rows, 2 * kHalf}, dtype).set_requires_grad(true);
}

}  // namespace

TEST_CASE_METHOD(LedgerScope, "rms_norm of what has mean 0 is layer_norm without a bias") {
  const DType dtype = GENERATE(DType::float32, DType::float64);
  const Tensor x = mirrored(130, dtype);
  const Tensor again = x.detach().clone().set_requires_grad(true);
  const Tensor weight = values_off_zero({32}, 2, dtype).set_requires_grad(true);
  const Tensor other = weight.detach().clone().set_requires_grad(true);
  const Tensor y = rms_norm(x, weight);
  const Tensor expected = layer_norm(again, other, Tensor::zeros({32}, dtype));
  CHECK(same_bits(y.detach(), expected.detach()));
  differentiate(y);
  differentiate(expected);
  CHECK(same_bits(weight.grad(), other.grad()));
  // layer_norm's gradient has no part along the ones; rms_norm's keeps the mean of gy * weight.
  CHECK_FALSE(same_bits(x.grad(), again.grad()));
}

TEST_CASE_METHOD(LedgerScope, "rms_norm is worked out by hand, and its eps is 1e-5 by default") {
  // Mean squares of 4, and with an eps of 12 of 16.
  const Tensor x = tensor({3, -3, 1, -1, 0, 4, 0, 0, -2, 0}, {2, 5});
  const Tensor weight = tensor({2, 4, 6, 8, 10}, {5});
  CHECK(rms_norm(x, weight, 0).to_vector() == std::vector<double>{3, -6, 3, -4, 0, 4, 0, 0, -8, 0});
  CHECK(rms_norm(x, weight, 12).to_vector() ==
        std::vector<double>{1.5, -3, 1.5, -2, 0, 2, 0, 0, -4, 0});
  const Tensor one = Tensor::ones({5}, DType::float64);
  CHECK(same_bits(rms_norm(x, one), rms_norm(x, one, 1e-5)));
  CHECK_FALSE(same_bits(rms_norm(x, one), rms_norm(x, one, 1e-4)));
}

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
