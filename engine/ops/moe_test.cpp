#include "engine/ops/moe.h"

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

#include "engine/ambient/ambient.h"
#include "engine/random/philox.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using namespace testing;
using Values = std::vector<double>;

Tensor no_load(std::int64_t experts = 2, DType dtype = DType::float64) {
  return Tensor::zeros({experts}, dtype);
}

TEST_CASE_METHOD(LedgerScope, "NaN goes to as many experts as any row") {
  Tensor load = no_load(3);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor y = moe(tensor({nan}, {1, 1}), tensor({1, 2, 3}, {3, 1}),
                       tensor({1, 2, 3}, {3, 1, 1}), load, {.top = 2});
  CHECK(std::isnan(y.item()));
  CHECK(load.to_vector() == Values{1, 1, 0});
}

TEST_CASE_METHOD(LedgerScope, "with much jitter the words that are drawn decide") {
  ambient().streams.seed(42);
  ambient().streams.at(0).draw(5);
  const PhiloxStream words{42, 0};
  const Tensor x = Tensor::ones({7, 1}, DType::float32);
  const Tensor router = tensor({1, 2, 3}, {3, 1}, DType::float32);
  const Tensor experts = tensor({1, 2, 3}, {3, 1, 1}, DType::float32);
  Tensor load = no_load(3, DType::float32);
  const Tensor y = moe(x, router, experts, load, {.jitter = 1e6});
  Values expected(3);
  for (std::uint64_t row = 0; row < 7; ++row) {
    std::array<double, 3> drawn{};
    for (std::uint64_t e = 0; e < 3; ++e) drawn[e] = uniform_float(words.word(8 + 3 * row + e));
    ++expected[static_cast<std::size_t>(std::ranges::max_element(drawn) - drawn.begin())];
  }
  CHECK(load.to_vector() == expected);
  CHECK(ambient().streams.at(0).offset == 8 + 24);
  moe(x, router, experts, load, {.jitter = 1e6, .random = {.train = false}});
  CHECK(ambient().streams.at(0).offset == 8 + 24);
}

TEST_CASE_METHOD(LedgerScope, "what does not fit a mixture is refused") {
  const Tensor x = tensor({1, 2}, {1, 2});
  const Tensor router = Tensor::ones({3, 2}, DType::float64);
  const Tensor experts = Tensor::ones({3, 2, 2}, DType::float64);
  Tensor load = no_load(3);
  Tensor pair = no_load(2);
  Tensor narrow = no_load(3, DType::float32);
  CHECK_NOTHROW(moe(x, router, experts, load, {.top = 3}));
  const auto refused = [&](const Tensor& a, const Tensor& r, const Tensor& e, Tensor& l,
                           const MoeOptions& options) {
    CHECK_THROWS_AS(moe(a, r, e, l, options), std::invalid_argument);
  };
  refused(tensor({1, 2}, {2}), router, experts, load, {});
  refused(tensor({1}, {1, 1}), router, experts, load, {});
  refused(x, router, Tensor::ones({3, 2, 1}, DType::float64), load, {});
  refused(x, router, experts, pair, {});
  refused(x, router, experts, narrow, {});
  refused(x, router, experts, load, {.top = 0});
  refused(x, router, experts, load, {.top = 4});
  refused(x, router, experts, load, {.jitter = -1});
}

}  // namespace
}  // namespace rematch
