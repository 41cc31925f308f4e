#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <memory>

#include "engine/autograd/backward.h"
#include "engine/nn/layers.h"
#include "engine/nn/optimizer.h"
#include "engine/ops/loss.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using namespace testing;

enum class Updates { sgd, sgd_momentum, adam };

/// linear, relu, dropout, linear, mse.
class Training {
 public:
  explicit Training(Updates rule)
      : input_(values_off_zero({4, 5}, 1, DType::float32)),
        target_(values_off_zero({4, 3}, 2, DType::float32)) {
    Generator g{7, 9, 0};
    net_ = std::make_unique<nn::Sequential>(std::vector<std::shared_ptr<nn::Module>>{
        std::make_shared<nn::Linear>(5, 6, true, DType::float32, &g),
        std::make_shared<nn::Activation>(nn::ActivationKind::relu),
        std::make_shared<nn::RandomLayer>(nn::RandomKind::dropout, 0.25),
        std::make_shared<nn::Linear>(6, 3, true, DType::float32, &g)});
    if (rule == Updates::adam) {
      optimizer_ = std::make_unique<nn::Adam>(net_->parameters(), 0.1);
    } else {
      optimizer_ = std::make_unique<nn::Sgd>(net_->parameters(), 0.1,
                                             rule == Updates::sgd_momentum ? 0.5 : 0.0);
    }
  }

  void step(std::uint64_t seed) {
    ambient().streams.seed(seed);
    optimizer_->zero_grad();
    backward(mse_loss(net_->forward(input_), target_));
    optimizer_->step();
  }
  void forget_gradients() { optimizer_->zero_grad(); }

  Tensors weights() const {
    Tensors copies;
    for (const Tensor& p : net_->parameters()) copies.push_back(p.clone());
    return copies;
  }

 private:
  Tensor input_;
  Tensor target_;
  std::unique_ptr<nn::Sequential> net_;
  std::unique_ptr<nn::Optimizer> optimizer_;
};

void check_same(const Tensors& got, const Tensors& expected) {
  REQUIRE(got.size() == expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    CHECK(same_bits(got[i], expected[i]));
  }
}

TEST_CASE_METHOD(LedgerScope, "a step that ran out of memory anywhere can be made again") {
  const Updates rule = GENERATE(Updates::sgd, Updates::sgd_momentum, Updates::adam);
  // The first step makes the optimizer's state, the second only uses it.
  const int failing_step = GENERATE(0, 1);
  CAPTURE(static_cast<int>(rule), failing_step);
  Tensors expected;
  std::int64_t allocations = 0;
  {
    Training reference(rule);
    for (int i = 0; i <= failing_step; ++i) {
      const std::int64_t before = ledger().allocations();
      reference.step(static_cast<std::uint64_t>(i));
      allocations = ledger().allocations() - before;
    }
    expected = reference.weights();
  }
  REQUIRE(allocations > 10);
  for (std::int64_t k = 1; k <= allocations; ++k) {
    CAPTURE(k);
    Training training(rule);
    if (failing_step == 1) training.step(0);
    training.forget_gradients();
    const Tensors before = training.weights();
    const std::int64_t live = ledger().live();
    ledger().fail_allocation(k);
    CHECK_THROWS_AS(training.step(static_cast<std::uint64_t>(failing_step)), OutOfMemory);
    CHECK(ambient().grad_enabled);
    CHECK(ambient().hooks == nullptr);
    CHECK(ambient().backward_id == 0);
    // The caller drops what a failed backward has accumulated.
    training.forget_gradients();
    CHECK(ledger().live() == live);
    check_same(training.weights(), before);
    training.step(static_cast<std::uint64_t>(failing_step));
    check_same(training.weights(), expected);
  }
}

}  // namespace
}  // namespace rematch
