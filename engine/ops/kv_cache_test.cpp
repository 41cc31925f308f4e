#include "engine/ops/kv_cache.h"

#include <catch2/catch_test_macros.hpp>
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
using testing::tensor;
using testing::variable;
using Values = std::vector<double>;

TEST_CASE_METHOD(LedgerScope, "every sequence stands behind what the forwards before it left") {
  Tensor cache = tensor({1, 2}, {2, 1});
  const Tensor first = kv_cache(tensor({3, 4, 5, 6, 7, 8}, {2, 3, 1}), cache, true);
  CHECK(first.shape() == Shape{2, 5, 1});
  CHECK(first.to_vector() == Values{1, 2, 3, 4, 5, 1, 2, 6, 7, 8});
  CHECK(cache.to_vector() == Values{4, 5});
  CHECK(kv_cache(tensor({9}, {1, 1, 1}), cache, true).to_vector() == Values{4, 5, 9});
  // One row is appended, and the oldest one dropped.
  CHECK(cache.to_vector() == Values{5, 9});
}

TEST_CASE_METHOD(LedgerScope, "rows are whole in the cache") {
  Tensor cache = tensor({1, 2, 3, 4}, {2, 2});
  kv_cache(tensor({5, 6}, {1, 1, 2}), cache, true);
  CHECK(cache.to_vector() == Values{3, 4, 5, 6});
}

TEST_CASE_METHOD(LedgerScope, "in evaluation the cache is read and stays") {
  Tensor cache = tensor({1}, {1, 1});
  const std::uint64_t before = cache.version();
  CHECK(kv_cache(tensor({2}, {1, 1, 1}), cache, false).to_vector() == Values{1, 2});
  CHECK(cache.to_vector() == Values{1});
  CHECK(cache.version() == before);
  kv_cache(tensor({2}, {1, 1, 1}), cache, true);
  CHECK(cache.version() > before);
}

TEST_CASE_METHOD(LedgerScope, "the gradient of a sequence is that of its own rows") {
  Tensor cache = tensor({1}, {1, 1});
  const Tensor x = variable({2, 3}, {2, 1, 1});
  const Tensor y = kv_cache(x, cache, true);
  // A later forward reads what x left, and has no gradient for it.
  const Tensor later = kv_cache(variable({4}, {1, 1, 1}), cache, true);
  backward(sum(later));
  CHECK_FALSE(x.grad().defined());
  backward(sum(mul(y, tensor({5, 7, 11, 13}, {2, 2, 1}))));
  CHECK(x.grad().to_vector() == Values{7, 13});
}

TEST_CASE_METHOD(LedgerScope, "a cache has rows of the input's width and dtype") {
  Tensor cache = tensor({1, 2}, {1, 2});
  CHECK_THROWS_AS(kv_cache(tensor({1}, {1, 1, 1}), cache, true), std::invalid_argument);
  CHECK_THROWS_AS(kv_cache(tensor({1, 2}, {1, 2}), cache, true), std::invalid_argument);
  CHECK_THROWS_AS(kv_cache(tensor({}, {0, 1, 2}), cache, true), std::invalid_argument);
  CHECK_THROWS_AS(kv_cache(tensor({1, 2}, {1, 1, 2}, DType::float32), cache, true),
                  std::invalid_argument);
  Tensor flat = tensor({1, 2}, {2});
  CHECK_THROWS_AS(kv_cache(tensor({1, 2}, {1, 1, 2}), flat, true), std::invalid_argument);
  Tensor narrow = tensor({1}, {1, 1}, DType::float32);
  const Tensor half = cast(tensor({3}, {1, 1, 1}, DType::float32), DType::bfloat16);
  CHECK(kv_cache(half, narrow, true).dtype() == DType::float32);
}

TEST_CASE_METHOD(LedgerScope, "it keeps its output and nothing else") {
  Tensor cache = tensor({1, 2}, {1, 2});
  const Tensor x = variable({1, 2, 3, 4}, {1, 2, 2});
  const std::int64_t before = ambient().ledger->live();
  const Tensor y = kv_cache(x, cache, true);
  CHECK(ambient().ledger->live() - before == 6 * 8);
}

}  // namespace
}  // namespace rematch
