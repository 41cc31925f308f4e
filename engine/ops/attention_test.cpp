#include "engine/ops/attention.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <stdexcept>
#include <vector>

#include "engine/ambient/ambient.h"
#include "engine/autograd/backward.h"
#include "engine/cpu/threads.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/dropout.h"
#include "engine/ops/join.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using testing::distinct_values;
using testing::LedgerScope;
using testing::tensor;
using testing::values_off_zero;

struct Gradients {
  std::vector<double> y;
  std::vector<double> q;
  std::vector<double> memory;
  friend bool operator==(const Gradients&, const Gradients&) = default;
};

Gradients run(Tensor q, Tensor memory, const AttentionOptions& options) {
  q = q.detach().set_requires_grad(true);
  memory = memory.detach().set_requires_grad(true);
  const Tensor y = attention(q, memory, options);
  backward(sum(mul(y, y)));
  return {y.to_vector(), q.grad().to_vector(), memory.grad().to_vector()};
}

TEST_CASE_METHOD(LedgerScope, "equal scores average the values") {
  const Tensor q = tensor({0, 0}, {1, 1, 2});
  // Two keys, then two values, of two features each.
  const Tensor memory = tensor({1, 2, 3, 4, 5, 6, 5, 8}, {1, 2, 4});
  CHECK(attention(q, memory, {}).to_vector() == std::vector<double>{4, 6});
}

TEST_CASE_METHOD(LedgerScope, "a causal query sees the keys up to its place alone") {
  const Tensor q = distinct_values({1, 2, 2}, 1);
  const Tensor memory = tensor({9, 9, 3, 4, 1, 7, 5, 8, 2, 1, 7, 7}, {1, 3, 4});
  const std::vector<double> all = attention(q, memory, {.causal = true}).to_vector();
  Tensor other = tensor({9, 9, 3, 4, 1, 7, 5, 8, -3, 8, 1, 2}, {1, 3, 4});
  const std::vector<double> changed = attention(q, other, {.causal = true}).to_vector();
  CHECK(all[0] == changed[0]);
  CHECK(all[1] == changed[1]);
  CHECK(all[2] != changed[2]);
  CHECK_THROWS_AS(attention(distinct_values({1, 4, 2}, 1), memory, {.causal = true}),
                  std::invalid_argument);
}

TEST_CASE_METHOD(LedgerScope, "a head of the memory serves heads as if it were there for each") {
  const Tensor q = distinct_values({2, 3, 8}, 1);
  const Tensor keys = distinct_values({2, 4, 2}, 2);
  const Tensor values = distinct_values({2, 4, 2}, 3);
  const auto twice = [](const Tensor& t) {
    const Tensor pair = concat(t, t, 2);
    return concat(pair, pair, 2);
  };
  const Tensor few = concat(keys, values, 2);
  const Tensor many = concat(twice(keys), twice(values), 2);
  const bool fused = GENERATE(false, true);
  const Gradients grouped = run(q, few, {.heads = 4, .fused = fused});
  const Gradients repeated = run(q, many, {.heads = 4, .fused = fused});
  CHECK(grouped.y == repeated.y);
  CHECK(grouped.q == repeated.q);
}

TEST_CASE_METHOD(LedgerScope, "fused and unfused attention compute and draw the same") {
  const Tensor q = distinct_values({2, 5, 6}, 4);
  const Tensor memory = distinct_values({2, 7, 4}, 5);
  const double p = GENERATE(0.0, 0.5);
  const auto forward = [&](bool fused) {
    ambient().streams.seed(3);
    const auto y = attention(q, memory, {.heads = 3, .causal = true, .fused = fused, .p = p});
    CHECK(ambient().streams.at(0).offset == (p > 0 ? 212U : 0U));
    return y.to_vector();
  };
  CHECK(forward(false) == forward(true));
}

TEST_CASE_METHOD(LedgerScope, "probabilities are dropped as dropout drops a tensor of all pairs") {
  // Probabilities are 1/4, those that are kept 1/2, and all values 1.
  constexpr std::int64_t kBatch = 2;
  constexpr std::int64_t kHeads = 3;
  constexpr std::int64_t kQueries = 5;
  constexpr std::int64_t kKeys = 4;
  const bool fused = GENERATE(false, true);
  ambient().streams.seed(9);
  const Tensor pairs = Tensor::ones({kBatch * kHeads * kQueries, kKeys}, DType::float64);
  const std::vector<double> kept = dropout(pairs, 0.5, {}).to_vector();
  ambient().streams.seed(9);
  const std::vector<double> y = attention(Tensor::zeros({kBatch, kQueries, kHeads}, DType::float64),
                                          Tensor::ones({kBatch, kKeys, 2}, DType::float64),
                                          {.heads = kHeads, .fused = fused, .p = 0.5})
                                    .to_vector();
  for (std::size_t row = 0; row < y.size(); ++row) {
    const std::size_t i = row % kQueries;
    const std::size_t h = row / kQueries % kHeads;
    const std::size_t b = row / kQueries / kHeads;
    double sum = 0;
    for (std::size_t j = 0; j < kKeys; ++j) sum += kept[row * kKeys + j] / 4;
    CHECK(y[(b * kQueries + i) * kHeads + h] == sum);
  }
}

TEST_CASE_METHOD(LedgerScope, "attention has the same bits on every number of threads") {
  const Tensor q = values_off_zero({1, 150, 16}, 6);
  const Tensor memory = values_off_zero({1, 1000, 16}, 7);
  const AttentionOptions options{.heads = 2, .fused = GENERATE(false, true), .p = 0.25};
  const auto with = [&](int threads) {
    const cpu::ThreadsScope scope(threads);
    ambient().streams.seed(1);
    return run(q, memory, options);
  };
  CHECK(with(1) == with(3));
}

}  // namespace
}  // namespace rematch
