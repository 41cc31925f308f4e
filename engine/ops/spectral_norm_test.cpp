#include "engine/ops/spectral_norm.h"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <stdexcept>
#include <utility>
#include <vector>

#include "engine/ops/cast.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using namespace testing;
using Values = std::vector<double>;

/// A weight [3, 2] with its bias and with vectors that do not belong to it yet.
struct NormalizedLayer {
  Tensor weight = values_off_zero({3, 2}, 1);
  Tensor bias = values_off_zero({3}, 2);
  Tensor u = tensor({1, 0, 0}, {3});
  Tensor v = tensor({0, 1}, {2});

  Tensor operator()(const Tensor& x) { return spectral_norm(x, weight, bias, u, v, true); }
};

TEST_CASE_METHOD(LedgerScope, "a weight of zeros leaves vectors of zeros") {
  Tensor u = tensor({0, 1}, {2});
  Tensor v = tensor({1}, {1});
  const Tensor y = spectral_norm(tensor({1}, {1, 1}), tensor({0, 0}, {2, 1}), {}, u, v, true);
  CHECK(u.to_vector() == Values{0, 0});
  CHECK(v.to_vector() == Values{0});
  CHECK(std::isnan(y.at(0)));
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

}  // namespace
}  // namespace rematch
