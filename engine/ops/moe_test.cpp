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
#include "engine/autograd/backward.h"
#include "engine/kernels/moe.h"
#include "engine/ops/arithmetic.h"
#include "engine/random/philox.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using testing::LedgerScope;
using testing::tensor;
using Values = std::vector<double>;

/// Two experts of one feature, 3x and 5x.
Tensor three_and_five() { return tensor({3, 5}, {2, 1, 1}); }
Tensor no_load(std::int64_t experts = 2, DType dtype = DType::float64) {
  return Tensor::zeros({experts}, dtype);
}

TEST_CASE_METHOD(LedgerScope, "a row gets the outputs of its experts by their probabilities") {
  Tensor load = no_load();
  // Probabilities of one half each.
  const Tensor even = tensor({0, 0}, {2, 1});
  CHECK(moe(tensor({2}, {1, 1}), even, three_and_five(), load, {.top = 2}).item() == 8);
  // The second is 2^10 times as likely, which is a probability of 1024 / 1025.
  const Tensor router = tensor({0, std::log(1024.0)}, {2, 1});
  const double y = moe(tensor({1}, {1, 1}), router, three_and_five(), load, {.top = 1}).item();
  // Some ten roundings, of a logarithm, an exponential and what follows.
  CHECK(std::abs(y - 5 * 1024.0 / 1025) < 10 * 5 * 0x1p-52);
}

TEST_CASE_METHOD(LedgerScope, "the first of equally likely experts is chosen") {
  Tensor load = no_load();
  const Tensor even = tensor({0, 0}, {2, 1});
  CHECK(moe(tensor({2, 4}, {2, 1}), even, three_and_five(), load, {.top = 1}).to_vector() ==
        Values{3, 6});
  CHECK(load.to_vector() == Values{2, 0});
}

TEST_CASE_METHOD(LedgerScope, "a training forward counts the rows of each expert") {
  Tensor load = no_load();
  const Tensor router = tensor({1, -1}, {2, 1});
  const Tensor x = tensor({1, -1, 2}, {1, 3, 1});
  moe(x, router, three_and_five(), load, {.random = {.train = false}});
  CHECK(load.to_vector() == Values{0, 0});
  const std::uint64_t before = load.version();
  moe(x, router, three_and_five(), load, {});
  CHECK(load.to_vector() == Values{2, 1});
  CHECK(load.version() > before);
  moe(x, router, three_and_five(), load, {.top = 2});
  CHECK(load.to_vector() == Values{5, 4});
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

TEST_CASE_METHOD(LedgerScope, "sums over more rows than are worked on at a time go on") {
  // Two experts: 32768 rows at a time. Small integers, so that the sums are exact.
  constexpr std::int64_t kRows = 70'001;
  Values values;
  for (std::int64_t r = 0; r < kRows; ++r) values.push_back(r % 3 == 0 ? 2 : -1);
  const Tensor x = Tensor::from(values, {kRows, 1}, DType::float64).set_requires_grad(true);
  // Logits that are far apart: each row goes to its expert with a probability of 1.
  const Tensor router = tensor({1000, -1000}, {2, 1}).set_requires_grad(true);
  const Tensor experts = three_and_five().set_requires_grad(true);
  Tensor load = no_load();
  backward(sum(moe(x, router, experts, load, {})));
  const double first = (kRows + 2) / 3;
  CHECK(load.to_vector() == Values{first, kRows - first});
  CHECK(experts.grad().to_vector() == Values{2 * first, -(kRows - first)});
  CHECK(router.grad().to_vector() == Values{0, 0});
  CHECK(x.grad().at(0) == 3);
  CHECK(x.grad().at(kRows - 1) == 5);
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

TEST_CASE("counts of experts are added up, and nothing behind them is written to") {
  const std::array<std::int32_t, 4> chosen{1, 0, 1, 2};
  std::array<double, 3> load{10, 20, 30};
  cpu::count_rows_of_experts(4, 2, chosen.data(), load.data());
  CHECK(load == std::array<double, 3>{11, 22, 30});
}

}  // namespace
}  // namespace rematch
