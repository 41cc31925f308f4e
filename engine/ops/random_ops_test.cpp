#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "engine/ops/dropout.h"
#include "engine/ops/noise.h"
#include "engine/random/philox.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using testing::LedgerScope;

TEST_CASE_METHOD(LedgerScope, "dropout keeps an element exactly when its word is below the bound") {
  ambient().streams.seed(42);
  ambient().streams.at(0).draw(5);
  const PhiloxStream words{42, 0};
  const double p = 0.25;
  const Tensor y = dropout(Tensor::full({9, 11}, DType::float32, 3), p);
  for (std::int64_t i = 0; i < y.elements(); ++i) {
    CAPTURE(i);
    const bool kept = words.word(8 + static_cast<std::uint64_t>(i)) < keep_threshold(p);
    CHECK(y.at(i) == (kept ? 4 : 0));
  }
  CHECK(ambient().streams.at(0).offset == 8 + 100);
}

TEST_CASE_METHOD(LedgerScope, "a random op that has nothing to do returns its operand itself") {
  const Tensor x = Tensor::ones({3}, DType::float32);
  CHECK(is_same(dropout(x, 0.0), x));
  CHECK(is_same(dropout(x, 0.5, {.train = false}), x));
  CHECK(is_same(gaussian_noise(x, 0.0), x));
  CHECK(is_same(gaussian_noise(x, 1.0, {.train = false}), x));
}

TEST_CASE_METHOD(LedgerScope, "gaussian noise has the mean and deviation that were asked for") {
  const std::int64_t n = 40000;
  const Tensor y = gaussian_noise(Tensor::zeros({n}, DType::float64), 2.0);
  double mean = 0;
  double squares = 0;
  for (std::int64_t i = 0; i < n; ++i) mean += y.at(i) / static_cast<double>(n);
  for (std::int64_t i = 0; i < n; ++i) squares += y.at(i) * y.at(i) / static_cast<double>(n);
  // Standard errors: 2 / sqrt(n) = 0.01 and 4 sqrt(2 / n) = 0.028; five of them. The words are
  // fixed, so this passes always or never.
  CHECK(std::abs(mean) < 0.05);
  CHECK(std::abs(squares - 4) < 0.14);
}

}  // namespace
}  // namespace rematch
