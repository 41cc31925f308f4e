#include "engine/ops/embedding.h"

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/autograd/backward.h"
#include "engine/cpu/threads.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/cast.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using namespace testing;
using Values = std::vector<double>;

Tensor tokens(std::initializer_list<double> values, const Shape& shape) {
  return tensor(values, shape, DType::int32);
}

TEST_CASE_METHOD(LedgerScope, "a sum over tokens has the same bits for any number of threads") {
  constexpr std::int64_t kTokens = 5000;
  std::vector<double> numbers;
  for (std::int64_t i = 0; i < kTokens; ++i) numbers.push_back(static_cast<double>(i * i % 7));
  const Tensor given = Tensor::from(numbers, {kTokens}, DType::int32);
  const Tensor upstream = values_off_zero({kTokens, 33}, 3, DType::float32);
  const auto gradient = [&](int threads) {
    const cpu::ThreadsScope scope(threads);
    const Tensor weight = values_off_zero({7, 33}, 5, DType::float32).set_requires_grad(true);
    backward(std::array{embedding(given, weight)}, std::array{upstream});
    return weight.grad().to_vector();
  };
  // In the order of the tokens.
  std::vector<float> sums(std::size_t{7} * 33);
  const std::vector<double> terms = upstream.to_vector();
  for (std::size_t i = 0; i < terms.size(); ++i) {
    sums[static_cast<std::size_t>(numbers[i / 33]) * 33 + i % 33] += static_cast<float>(terms[i]);
  }
  CHECK(gradient(1) == Values(sums.begin(), sums.end()));
  CHECK(gradient(2) == gradient(1));
  CHECK(gradient(5) == gradient(1));
}

TEST_CASE_METHOD(LedgerScope, "tokens that are none are refused by their place") {
  const Tensor weight = tensor({1, 2, 3, 4}, {2, 2});
  const auto message = [&](const Tensor& given, const Tensor& table) {
    try {
      embedding(given, table);
    } catch (const std::invalid_argument& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  CHECK(message(tokens({0, 2}, {2}), weight) ==
        "[embedding] token in [0, 2) expected at position 1, got 2");
  CHECK(message(tokens({-1}, {1}), weight) ==
        "[embedding] token in [0, 2) expected at position 0, got -1");
  CHECK(message(tensor({0}, {1}), weight) == "[embedding] int32 tokens expected, got float64");
  CHECK(message(tokens({0}, {1}), tensor({1}, {1})) ==
        "[embedding] weight of rank 2 expected, got [1]");
  const Tensor half = cast(tensor({1, 2}, {1, 2}, DType::float32), DType::bfloat16);
  CHECK(embedding(tokens({0}, {1}), half).dtype() == DType::float32);
}

}  // namespace
}  // namespace rematch
