#include "engine/checkpoint/early_stop.h"

#include <catch2/catch_test_macros.hpp>
#include <stdexcept>

#include "engine/autograd/backward.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using testing::LedgerScope;
using testing::variable;

/// Runs of what comes after the last saved tensor: 1 when the replay stopped early.
class Tail {
 public:
  explicit Tail(bool option) {
    CheckpointOptions options;
    options.early_stop = option;
    loss_ = checkpoint(
        [this](const Tensors& in) -> Tensors {
          const Tensor y = tanh(in[0]);
          ++runs_;
          return {y};
        },
        {variable({0.5}, {1})}, options)[0];
  }
  int runs() {
    backward(loss_);
    return runs_;
  }

 private:
  int runs_ = 0;
  Tensor loss_;
};

}  // namespace

TEST_CASE_METHOD(LedgerScope, "a scope decides early stop over the options, the innermost first") {
  const EarlyStop off(false);
  CHECK(Tail(true).runs() == 2);
  {
    const EarlyStop on(true);
    CHECK(Tail(false).runs() == 1);
    const EarlyStop undecided(std::nullopt);
    CHECK(Tail(false).runs() == 2);
    CHECK(Tail(true).runs() == 1);
  }
  CHECK(Tail(true).runs() == 2);
}

TEST_CASE_METHOD(LedgerScope, "a scope counts where the forward runs, not where backward does") {
  std::optional<Tail> tail;
  {
    const EarlyStop off(false);
    tail.emplace(true);
  }
  CHECK(tail->runs() == 2);
  tail.emplace(true);
  const EarlyStop off(false);
  CHECK(tail->runs() == 1);
}

TEST_CASE_METHOD(LedgerScope, "a scope left by an exception decides no more") {
  try {
    const EarlyStop off(false);
    throw std::domain_error("mine");
  } catch (const std::domain_error&) {
  }
  CHECK(Tail(true).runs() == 1);
}

}  // namespace rematch
