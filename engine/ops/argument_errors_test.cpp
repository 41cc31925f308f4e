#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <stdexcept>

#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/attention.h"
#include "engine/ops/batch_norm.h"
#include "engine/ops/cast.h"
#include "engine/ops/conv2d.h"
#include "engine/ops/dropout.h"
#include "engine/ops/group_norm.h"
#include "engine/ops/join.h"
#include "engine/ops/kv_cache.h"
#include "engine/ops/layer_norm.h"
#include "engine/ops/linear.h"
#include "engine/ops/loss.h"
#include "engine/ops/noise.h"
#include "engine/ops/pool2d.h"
#include "engine/ops/rms_norm.h"
#include "engine/ops/rotary.h"
#include "engine/ops/view.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

// A misuse says what was expected and what came. A refused call has drawn nothing and written
// nothing; the fixture sees to it that it keeps nothing, either.

namespace rematch {
namespace {

using Catch::Matchers::Message;
using namespace testing;

Tensor zeros(const Shape& shape, DType dtype = DType::float32) {
  return Tensor::zeros(shape, dtype);
}

#define CHECK_REFUSED(call, text) CHECK_THROWS_MATCHES(call, std::invalid_argument, Message(text))

TEST_CASE_METHOD(LedgerScope, "linear refuses operands that do not fit") {
  CHECK_REFUSED(linear(zeros({3}), zeros({2, 3})),
                "[linear] input of rank 2 or more expected, got [3]");
  CHECK_REFUSED(linear(zeros({1, 3}), zeros({2, 4})),
                "[linear] input of width 4 expected, got [1, 3]");
  CHECK_REFUSED(linear(zeros({1, 3}), zeros({2, 3}), zeros({3})),
                "[linear] bias of shape [2] expected, got [3]");
  CHECK_REFUSED(linear(zeros({1, 3}), zeros({2, 3}, DType::float64)),
                "[linear] operands of one dtype expected, got float32 and float64");
}

TEST_CASE_METHOD(LedgerScope, "conv2d refuses operands that do not fit") {
  CHECK_REFUSED(conv2d(zeros({1, 2, 3}), zeros({1, 2, 2, 2})),
                "[conv2d] input of rank 4 expected, got [1, 2, 3]");
  CHECK_REFUSED(conv2d(zeros({1, 2, 3, 3}), zeros({1, 3, 2, 2})),
                "[conv2d] input with 3 channels expected, got [1, 2, 3, 3]");
  CHECK_REFUSED(conv2d(zeros({1, 2, 3, 3}), zeros({1, 2, 2, 2}), {}, 0, 0),
                "[conv2d] stride >= 1 and padding >= 0 expected, got 0 and 0");
  CHECK_REFUSED(conv2d(zeros({1, 2, 3, 3}), zeros({1, 2, 2, 2}), {}, 1, -1),
                "[conv2d] stride >= 1 and padding >= 0 expected, got 1 and -1");
  CHECK_REFUSED(conv2d(zeros({1, 2, 3, 3}), zeros({1, 2, 6, 2}), {}, 1, 1),
                "[conv2d] kernel 6 x 2 does not fit the input [1, 2, 3, 3] padded by 1");
}

TEST_CASE_METHOD(LedgerScope, "pooling refuses windows that do not fit") {
  CHECK_REFUSED(max_pool2d(zeros({1, 1, 3, 3}), 4, 1),
                "[max_pool2d] window 4 does not fit the input [1, 1, 3, 3] padded by 0");
  CHECK_REFUSED(avg_pool2d(zeros({1, 1, 3, 3}), 2, 1, 2),
                "[avg_pool2d] kernel >= 1, stride >= 1 and 0 <= padding <= kernel / 2 expected, "
                "got 2, 1, 2");
  CHECK_REFUSED(max_pool2d(zeros({3, 3}), 2, 1),
                "[max_pool2d] input of rank 4 expected, got [3, 3]");
}

TEST_CASE_METHOD(LedgerScope, "normalisations refuse what they cannot normalise") {
  Tensor mean = zeros({2});
  Tensor var = zeros({2});
  CHECK_REFUSED(batch_norm(zeros({2, 2, 2}), zeros({2}), zeros({2}), mean, var),
                "[batch_norm] input of rank 2 or 4 expected, got [2, 2, 2]");
  CHECK_REFUSED(batch_norm(zeros({1, 2}), zeros({2}), zeros({2}), mean, var),
                "[batch_norm] training needs more than one value per channel, got input [1, 2]");
  CHECK_NOTHROW(batch_norm(zeros({1, 2}), zeros({2}), zeros({2}), mean, var, {.train = false}));
  CHECK_REFUSED(batch_norm(zeros({3, 2}), zeros({3}), zeros({2}), mean, var),
                "[batch_norm] parameter or statistic of shape [2] expected, got [3]");
  CHECK_REFUSED(layer_norm(zeros({0, 3}), zeros({3}), zeros({3})),
                "[layer_norm] a non-empty input of rank >= 1 expected, got [0, 3]");
  CHECK_REFUSED(layer_norm(zeros({2, 3}), zeros({2}), zeros({3})),
                "[layer_norm] parameter of shape [3] expected, got [2]");
  CHECK_REFUSED(rms_norm(zeros({}), zeros({1})),
                "[rms_norm] a non-empty input of rank >= 1 expected, got []");
  CHECK_REFUSED(rms_norm(zeros({0, 3}), zeros({3})),
                "[rms_norm] a non-empty input of rank >= 1 expected, got [0, 3]");
  CHECK_REFUSED(rms_norm(zeros({2, 3}), zeros({2})),
                "[rms_norm] parameter of shape [3] expected, got [2]");
  CHECK_REFUSED(rms_norm(zeros({2, 3}), zeros({3}, DType::float64)),
                "[rms_norm] operands of one dtype expected, got float32 and float64");
  CHECK_REFUSED(group_norm(zeros({2, 4, 2}), 2, zeros({4}), zeros({4})),
                "[group_norm] a non-empty input of rank 2 or 4 expected, got [2, 4, 2]");
  CHECK_REFUSED(group_norm(zeros({2, 4, 0, 2}), 2, zeros({4}), zeros({4})),
                "[group_norm] a non-empty input of rank 2 or 4 expected, got [2, 4, 0, 2]");
  for (const auto& [groups, got] : {std::pair{3, "3"}, {0, "0"}, {-2, "-2"}, {8, "8"}}) {
    CHECK_REFUSED(group_norm(zeros({2, 4}), groups, zeros({4}), zeros({4})),
                  "[group_norm] groups that divide 4 channels expected, got " + std::string(got));
  }
  CHECK_REFUSED(group_norm(zeros({2, 4}), 2, zeros({2}), zeros({4})),
                "[group_norm] parameter of shape [4] expected, got [2]");
  CHECK_REFUSED(group_norm(zeros({2, 4}), 2, zeros({4}), zeros({4}, DType::float64)),
                "[group_norm] operands of one dtype expected, got float32 and float64");
  CHECK(mean.version() == 0);
}

TEST_CASE_METHOD(LedgerScope, "arithmetic refuses operands of different shape or dtype") {
  CHECK_REFUSED(add(zeros({2}), zeros({3})), "[add] second operand of shape [2] expected, got [3]");
  CHECK_REFUSED(mul(zeros({2}), zeros({2, 1})),
                "[mul] second operand of shape [2] expected, got [2, 1]");
  CHECK_REFUSED(add(zeros({2}), zeros({2}, DType::float64)),
                "[add] operands of one dtype expected, got float32 and float64");
  CHECK_REFUSED(scale(zeros({2}, DType::int32), 2),
                "[scale] float32 or float64 expected, got int32");
  CHECK_REFUSED(relu(zeros({2}, DType::uint8)), "[relu] float32 or float64 expected, got uint8");
}

TEST_CASE_METHOD(LedgerScope, "joining, splitting and reshaping refuse what does not fit") {
  CHECK_REFUSED(concat(zeros({2}), zeros({2})),
                "[concat] operands with a dimension 1 expected, got [2]");
  CHECK_REFUSED(concat(zeros({2, 3}), zeros({3, 3})),
                "[concat] operands that agree outside dimension 1 expected, got [2, 3] and [3, 3]");
  CHECK_REFUSED(concat(zeros({2, 3}), zeros({2, 3, 1})),
                "[concat] operands that agree outside dimension 1 expected, got [2, 3] and "
                "[2, 3, 1]");
  CHECK_REFUSED(split(zeros({2, 3}), 3),
                "[split] 1 <= first < extent of dimension 1 expected, got 3 and [2, 3]");
  CHECK_REFUSED(split(zeros({2, 3}), 0),
                "[split] 1 <= first < extent of dimension 1 expected, got 0 and [2, 3]");
  CHECK_REFUSED(reshape(zeros({2, 3}), {5}), "[reshape] a shape of 6 elements expected, got [5]");
  CHECK_REFUSED(flatten(zeros({})), "[flatten] a tensor with a batch expected");
}

TEST_CASE_METHOD(LedgerScope, "losses refuse targets that do not fit") {
  CHECK_REFUSED(mse_loss(zeros({2}), zeros({3})),
                "[mse_loss] target of shape [2] expected, got [3]");
  CHECK_REFUSED(mse_loss(zeros({0}), zeros({0})), "[mse_loss] a non-empty input expected");
  CHECK_REFUSED(mse_loss(zeros({2}), zeros({2}).set_requires_grad(true)),
                "[mse_loss] a target without requires_grad expected; detach() it");
  CHECK_REFUSED(cross_entropy(zeros({2, 3}), tensor({0, 3}, {2}, DType::int32)),
                "[cross_entropy] class in [0, 3) expected in row 1, got 3");
  CHECK_REFUSED(cross_entropy(zeros({2, 3}), tensor({-1, 0}, {2}, DType::int32)),
                "[cross_entropy] class in [0, 3) expected in row 0, got -1");
  CHECK_REFUSED(cross_entropy(zeros({2, 3}), tensor({0}, {1}, DType::int32)),
                "[cross_entropy] target of shape [2] expected, got [1]");
}

TEST_CASE_METHOD(LedgerScope, "random ops refuse probabilities and ranges that make no sense") {
  CHECK_REFUSED(dropout(zeros({2}), 1.0), "[dropout] probability in [0, 1) expected, got 1.000000");
  CHECK_REFUSED(dropout(zeros({2}), -0.5),
                "[dropout] probability in [0, 1) expected, got -0.500000");
  CHECK_REFUSED(rrelu(zeros({2}), 0.5, 0.25),
                "[rrelu] lower <= upper expected, got 0.500000 and 0.250000");
  CHECK_REFUSED(gaussian_noise(zeros({2}), -1),
                "[gaussian_noise] sigma >= 0 expected, got -1.000000");
  CHECK(ambient().streams.at(0).offset == 0);
}

TEST_CASE_METHOD(LedgerScope, "a random op of a dtype that cannot be drawn for draws nothing") {
  CHECK_REFUSED(dropout(zeros({2}, DType::int32), 0.5),
                "[dropout] float32, float64 or bfloat16 expected, got int32");
  CHECK_THROWS_AS(rrelu(zeros({2}, DType::int32)), std::invalid_argument);
  CHECK_THROWS_AS(gaussian_noise(zeros({2}, DType::int32), 1), std::invalid_argument);
  CHECK(ambient().streams.at(0).offset == 0);
}

TEST_CASE_METHOD(LedgerScope, "attention refuses more causal queries than keys") {
  CHECK_THROWS_AS(attention(zeros({1, 4, 2}), zeros({1, 3, 4}), {.causal = true}),
                  std::invalid_argument);
}

TEST_CASE_METHOD(LedgerScope, "rotary positions refuse what they cannot pair") {
  const Tensor x = values_off_zero({1, 2, 6}, 7);
  CHECK_THROWS_AS(rotary(x, 3, 1), std::invalid_argument);
  CHECK_THROWS_AS(rotary(x, 6, 2), std::invalid_argument);
  CHECK_THROWS_AS(rotary(x, 8, 1), std::invalid_argument);
  CHECK_THROWS_AS(rotary(x, 0, 0), std::invalid_argument);
  CHECK_THROWS_AS(rotary(values_off_zero({2, 6}, 8), 2, 1), std::invalid_argument);
  CHECK(
      rotary(cast(values_off_zero({1, 1, 2}, 9, DType::float32), DType::bfloat16), 2, 1).dtype() ==
      DType::float32);
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

TEST_CASE_METHOD(LedgerScope, "an undefined operand is refused, not read") {
  CHECK_THROWS_AS(relu(Tensor()), std::invalid_argument);
  CHECK_THROWS_AS(add(zeros({1}), Tensor()), std::invalid_argument);
  CHECK_THROWS_AS(linear(Tensor(), zeros({1, 1})), std::invalid_argument);
  CHECK_THROWS_AS(linear(zeros({1, 1}), Tensor()), std::invalid_argument);
  CHECK_THROWS_AS(reshape(Tensor(), {}), std::invalid_argument);
}

}  // namespace
}  // namespace rematch
