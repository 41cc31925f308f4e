#include "engine/ops/spectral_norm.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstdint>
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
using testing::same_bits;
using testing::tensor;
using testing::values_off_zero;
using Values = std::vector<double>;

/// A weight [3, 2] with its bias and with vectors that do not belong to it yet.
struct NormalizedLayer {
  Tensor weight = values_off_zero({3, 2}, 1).set_requires_grad(true);
  Tensor bias = values_off_zero({3}, 2).set_requires_grad(true);
  Tensor u = tensor({1, 0, 0}, {3});
  Tensor v = tensor({0, 1}, {2});

  Tensor operator()(const Tensor& x, bool train = true) {
    return spectral_norm(x, weight, bias, u, v, train);
  }
};

TEST_CASE_METHOD(LedgerScope, "a training forward takes one step of the power iteration") {
  Tensor u = tensor({0, 1}, {2});
  Tensor v = tensor({0}, {1});
  const Tensor weight = tensor({3, 4}, {2, 1});
  // v = 4 / 4 and u = (3, 4) / 5, so that sigma is 5.
  const Tensor y = spectral_norm(tensor({10, -5}, {2, 1}), weight, {}, u, v, true);
  CHECK(v.to_vector() == Values{1});
  CHECK(u.to_vector() == Values{0.6, 0.8});
  CHECK(y.to_vector() == Values{3.0 / 5 * 10, 4.0 / 5 * 10, -3, -4});
}

TEST_CASE_METHOD(LedgerScope, "in evaluation the vectors stay, and are taken as they are") {
  Tensor u = tensor({0, 1}, {2});
  Tensor v = tensor({2}, {1});
  const Tensor weight = tensor({3, 4}, {2, 1});
  const Tensor y = spectral_norm(tensor({16}, {1, 1}), weight, {}, u, v, false);
  CHECK(y.to_vector() == Values{6, 8});  // sigma = 1 * 4 * 2
  CHECK(u.to_vector() == Values{0, 1});
  CHECK(v.to_vector() == Values{2});
}

TEST_CASE_METHOD(LedgerScope, "a weight of zeros leaves vectors of zeros") {
  Tensor u = tensor({0, 1}, {2});
  Tensor v = tensor({1}, {1});
  const Tensor y = spectral_norm(tensor({1}, {1, 1}), tensor({0, 0}, {2, 1}), {}, u, v, true);
  CHECK(u.to_vector() == Values{0, 0});
  CHECK(v.to_vector() == Values{0});
  CHECK(std::isnan(y.at(0)));
}

TEST_CASE_METHOD(LedgerScope, "training is evaluation with the vectors that it leaves") {
  // Also in the gradients: they take the vectors as given.
  const Shape shape = GENERATE(Shape{4, 2}, Shape{2, 3, 2});
  const Tensor x = values_off_zero(shape, 3).set_requires_grad(true);
  NormalizedLayer layer;
  const Tensor trained = layer(x);
  CHECK(trained.shape() == shape.with_extent(shape.rank() - 1, 3));
  const Tensor factors = values_off_zero(trained.shape(), 4);
  backward(sum(mul(trained, factors)));
  NormalizedLayer after;
  after.u = layer.u;
  after.v = layer.v;
  const Tensor z = x.clone().detach().set_requires_grad(true);
  const Tensor evaluated = after(z, false);
  backward(sum(mul(evaluated, factors)));
  CHECK(same_bits(trained, evaluated));
  CHECK(same_bits(x.grad(), z.grad()));
  CHECK(same_bits(layer.weight.grad(), after.weight.grad()));
  CHECK(same_bits(layer.bias.grad(), after.bias.grad()));
}

TEST_CASE_METHOD(LedgerScope, "the vectors count as changed once they moved on") {
  NormalizedLayer layer;
  const Tensor x = values_off_zero({2, 2}, 7);
  const std::uint64_t u = layer.u.version();
  const std::uint64_t v = layer.v.version();
  layer(x, false);
  CHECK(layer.u.version() == u);
  CHECK(layer.v.version() == v);
  layer(x);
  CHECK(layer.u.version() > u);
  CHECK(layer.v.version() > v);
}

TEST_CASE_METHOD(LedgerScope, "operands fit the weight, and are of its dtype") {
  NormalizedLayer layer;
  const auto refuses = [](const Tensor& x, NormalizedLayer& l) {
    CHECK_THROWS_AS(l(x), std::invalid_argument);
  };
  refuses(values_off_zero({2, 3}, 8), layer);
  refuses(values_off_zero({2}, 8), layer);
  refuses(values_off_zero({2, 2}, 8, DType::float32), layer);
  NormalizedLayer swapped;
  std::swap(swapped.u, swapped.v);
  refuses(values_off_zero({2, 2}, 8), swapped);
  NormalizedLayer narrow;
  narrow.bias = tensor({1}, {1});
  refuses(values_off_zero({2, 2}, 8), narrow);
  Tensor u = tensor({1}, {1}, DType::float32);
  Tensor v = tensor({1}, {1}, DType::float32);
  const Tensor half = cast(tensor({3}, {1, 1}, DType::float32), DType::bfloat16);
  const Tensor weight = tensor({2}, {1, 1}, DType::float32);
  CHECK(spectral_norm(half, weight, {}, u, v, true).dtype() == DType::float32);
}

TEST_CASE_METHOD(LedgerScope, "it keeps the weight that it used, the vectors and sigma") {
  const bool train = GENERATE(true, false);
  NormalizedLayer layer;
  const Tensor x = values_off_zero({5, 2}, 9).set_requires_grad(true);
  const std::int64_t before = ambient().ledger->live();
  const Tensor y = layer(x, train);
  CHECK(ambient().ledger->live() - before == (5 * 3 + 3 * 2 + 3 + 2 + 1) * 8);
}

}  // namespace
}  // namespace rematch
