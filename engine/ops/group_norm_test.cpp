#include "engine/ops/group_norm.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <vector>

#include "engine/autograd/backward.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/join.h"
#include "engine/ops/layer_norm.h"
#include "engine/ops/view.h"
#include "engine/testing/differentiate.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using testing::differentiate;
using testing::leaf;
using testing::LedgerScope;
using testing::same_bits;
using testing::values_off_zero;

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

TEST_CASE_METHOD(LedgerScope, "one group is layer_norm over the whole sample") {
  const DType dtype = dtypes();
  const Shape shape = GENERATE(Shape{3, 5}, Shape{129, 3}, Shape{2, 3, 5, 7}, Shape{2, 3, 40, 37});
  const Tensor x = leaf(shape, 1, dtype);
  const Tensor again = x.detach().clone().set_requires_grad(true);
  const Tensor weight = leaf({shape[1]}, 2, dtype);
  const Tensor bias = leaf({shape[1]}, 3, dtype);
  const Shape row{1, shape.elements() / shape[0]};
  const Shape one{1, shape[1], shape.rank() == 4 ? shape[2] : 1, shape.rank() == 4 ? shape[3] : 1};
  const Tensor row_weight = reshape(spread(weight, one), {row[1]}).set_requires_grad(true);
  const Tensor row_bias = reshape(spread(bias, one), {row[1]}).set_requires_grad(true);
  const Tensor y = group_norm(x, 1, weight, bias);
  const Tensor expected =
      reshape(layer_norm(reshape(again, {shape[0], row[1]}), row_weight, row_bias), shape);
  CHECK(same_bits(y.detach(), expected.detach()));
  differentiate(y);
  differentiate(expected);
  CHECK(same_bits(x.grad(), again.grad()));
  // layer_norm adds 128 rows at a time in the dtype, group_norm in double as batch_norm does.
  if (shape.rank() == 2 && dtype == DType::float64) {
    CHECK(same_bits(weight.grad(), row_weight.grad()));
    CHECK(same_bits(bias.grad(), row_bias.grad()));
  }
}

TEST_CASE_METHOD(LedgerScope, "as many groups as channels normalise each plane by itself") {
  const DType dtype = dtypes();
  const Shape shape = GENERATE(Shape{2, 3, 5, 7}, Shape{1, 5, 1, 2}, Shape{3, 1, 4, 4});
  const Shape planes{shape[0] * shape[1], shape[2] * shape[3]};
  const Tensor x = leaf(shape, 1, dtype);
  const Tensor again = x.detach().clone().set_requires_grad(true);
  const Tensor weight = values_off_zero({shape[1]}, 2, dtype);
  const Tensor bias = values_off_zero({shape[1]}, 3, dtype);
  const Tensor y = group_norm(x, shape[1], weight, bias);
  const Tensor plain = layer_norm(reshape(again, planes), Tensor::ones({planes[1]}, dtype),
                                  Tensor::zeros({planes[1]}, dtype));
  const Tensor expected =
      add(mul(reshape(plain, shape), spread(weight, shape)), spread(bias, shape));
  CHECK(same_bits(y.detach(), expected.detach()));
  differentiate(y);
  differentiate(expected);
  CHECK(same_bits(x.grad(), again.grad()));
}

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

TEST_CASE_METHOD(LedgerScope, "a group is normalised as if it were alone") {
  const DType dtype = dtypes();
  const Shape shape = GENERATE(Shape{5, 6}, Shape{130, 2}, Shape{3, 4, 3, 3}, Shape{2, 6, 30, 17});
  const std::int64_t half = shape[1] / 2;
  const auto run = [&](bool together) {
    const Tensor x = leaf(shape, 1, dtype);
    const Tensor weight = leaf({1, shape[1]}, 2, dtype);
    const Tensor bias = leaf({1, shape[1]}, 3, dtype);
    const auto flat = [](const Tensor& t) { return reshape(t, {t.elements()}); };
    const auto halves = [&](const Tensor& t) { return split(t, half); };
    const auto alone = [&](std::size_t i) {
      return group_norm(halves(x)[i], 1, flat(halves(weight)[i]), flat(halves(bias)[i]));
    };
    const Tensor y =
        together ? group_norm(x, 2, flat(weight), flat(bias)) : concat(alone(0), alone(1));
    differentiate(y);
    return Tensors{y.detach(), x.grad(), weight.grad(), bias.grad()};
  };
  const Tensors together = run(true);
  const Tensors apart = run(false);
  for (std::size_t i = 0; i < together.size(); ++i) {
    CAPTURE(i);
    CHECK(same_bits(together[i], apart[i]));
  }
}

TEST_CASE_METHOD(LedgerScope, "eps is 1e-5 unless another is given") {
  const Tensor x = values_off_zero({2, 6}, 1);
  const Tensor one = Tensor::ones({6}, DType::float64);
  CHECK(same_bits(group_norm(x, 2, one, one), group_norm(x, 2, one, one, 1e-5)));
  CHECK_FALSE(same_bits(group_norm(x, 2, one, one), group_norm(x, 2, one, one, 1e-4)));
}

}  // namespace rematch
