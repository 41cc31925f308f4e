#include "engine/ops/recurrent.h"

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <stdexcept>
#include <utility>
#include <vector>

#include "engine/autograd/backward.h"
#include "engine/cpu/threads.h"
#include "engine/ops/arithmetic.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using namespace testing;

RecurrentParameters parameters(std::int64_t gates, std::int64_t width, std::int64_t features,
                               bool bias) {
  const std::int64_t rows = gates * features;
  RecurrentParameters p{values_off_zero({rows, width}, 2), values_off_zero({rows, features}, 3)};
  if (bias) {
    p.input_bias = values_off_zero({rows}, 4);
    p.hidden_bias = values_off_zero({rows}, 5);
  }
  return p;
}

TEST_CASE_METHOD(LedgerScope, "a recurrent layer saves what its gradients read") {
  const bool lstm = GENERATE(false, true);
  const bool frozen = GENERATE(false, true);
  constexpr std::int64_t kStates = 2 * 3 * 5;
  RecurrentParameters p = parameters(lstm ? 4 : 3, 7, 5, true);
  for (Tensor* t : {&p.input, &p.hidden, &p.input_bias, &p.hidden_bias}) {
    t->set_requires_grad(!frozen);
  }
  const Tensor x = values_off_zero({2, 3, 7}, 1).set_requires_grad(frozen);
  const Tensor y = lstm ? rematch::lstm(x, p) : gru(x, p);
  const std::int64_t operand = (frozen ? p.input.elements() : x.elements()) + p.hidden.elements();
  CHECK(ledger().live(Tag::saved) == 8 * (operand + (lstm ? 6 : 5) * kStates));
}

TEST_CASE_METHOD(LedgerScope, "a recurrent layer has the same bits on every number of threads") {
  const bool lstm = GENERATE(false, true);
  const RecurrentParameters p = parameters(lstm ? 4 : 3, 40, 64, true);
  const auto with = [&](int threads) {
    const cpu::ThreadsScope scope(threads);
    const Tensor x = values_off_zero({150, 12, 40}, 1).set_requires_grad(true);
    const Tensor w = p.hidden.detach().set_requires_grad(true);
    const RecurrentParameters own{p.input, w, p.input_bias, p.hidden_bias};
    const Tensor y = lstm ? rematch::lstm(x, own) : gru(x, own);
    backward(sum(mul(y, y)));
    return std::array{y.to_vector(), x.grad().to_vector(), w.grad().to_vector()};
  };
  CHECK(with(1) == with(3));
}

TEST_CASE_METHOD(LedgerScope, "a recurrent layer says which parameter does not fit") {
  const Tensor x = values_off_zero({2, 3, 7}, 1);
  RecurrentParameters p = parameters(3, 7, 5, true);
  CHECK_THROWS_AS(lstm(x, p), std::invalid_argument);
  p.hidden_bias = {};
  CHECK_THROWS_AS(gru(x, p), std::invalid_argument);
  CHECK_THROWS_AS(gru(values_off_zero({3, 7}, 1), parameters(3, 7, 5, true)),
                  std::invalid_argument);
  CHECK_THROWS_AS(gru(x, parameters(3, 6, 5, true)), std::invalid_argument);
}

}  // namespace
}  // namespace rematch
