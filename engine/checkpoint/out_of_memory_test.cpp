#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "engine/autograd/autocast.h"
#include "engine/autograd/backward.h"
#include "engine/checkpoint/sequential.h"
#include "engine/nn/layers.h"
#include "engine/nn/optimizer.h"
#include "engine/ops/loss.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

/// One training step from nothing; returns the weights after it.
Tensors train(bool reentrant, int nested, bool autocast, std::int64_t fail_at) {
  ambient().streams.seed(5);
  ambient().ledger->fail_allocation(fail_at);
  Generator g{3, 11, 0};
  std::vector<std::shared_ptr<nn::Module>> layers;
  layers.push_back(std::make_shared<nn::Linear>(5, 6, true, DType::float32, &g));
  layers.push_back(std::make_shared<nn::BatchNorm>(6));
  layers.push_back(std::make_shared<nn::RandomLayer>(nn::RandomKind::dropout, 0.5));
  layers.push_back(std::make_shared<nn::Linear>(6, 4, true, DType::float32, &g));
  layers.push_back(std::make_shared<nn::Activation>(nn::ActivationKind::tanh));
  layers.push_back(std::make_shared<nn::Linear>(4, 2, true, DType::float32, &g));
  nn::Sequential net(layers);
  nn::Adam optimizer(net.parameters(), 0.1);
  Tensor x = Tensor::ones({3, 5}, DType::float32, Tag::inputs);
  x.set_requires_grad(true);
  const Tensor target = Tensor::zeros({3, 2}, DType::float32, Tag::inputs);
  CheckpointOptions options;
  options.reentrant = reentrant;
  std::vector<Function> functions = net.functions();
  for (int i = 0; i < nested; ++i) {
    for (Function& f : functions) {
      f = [inner = f, options](const Tensors& in) { return checkpoint(inner, in, options); };
    }
  }
  Tensor loss;
  {
    const AutocastScope scope(autocast);
    loss = mse_loss(checkpoint_sequential(functions, 3, {x}, LastSegment::checkpointed, options)[0],
                    target);
  }
  backward(loss);
  optimizer.step();
  Tensors weights;
  for (const Tensor& p : net.parameters()) weights.push_back(p);
  return weights;
}

}  // namespace

TEST_CASE("out of memory at any allocation of a checkpointed step leaves nothing behind") {
  const bool reentrant = GENERATE(false, true);
  const int nested = GENERATE(0, 1);
  const bool autocast = GENERATE(false, true);
  Tensors expected;
  std::int64_t allocations = 0;
  {
    const Ambient outer = ambient();
    ambient() = Ambient();
    expected = train(reentrant, nested, autocast, 0);
    allocations = ambient().ledger->allocations();
    ambient() = outer;
  }
  std::int64_t failures = 0;
  for (std::int64_t k = 1; k <= allocations; ++k) {
    // Checks on leaving that no byte is live and that the ambient state is as it was.
    const testing::LedgerScope scope;
    try {
      train(reentrant, nested, autocast, k);
    } catch (const OutOfMemory&) {
      ++failures;
    }
    CHECK(ambient().ledger->live() == 0);
    CHECK_FALSE(ambient().recomputing);
    const Tensors again = train(reentrant, nested, autocast, 0);
    REQUIRE(again.size() == expected.size());
    for (std::size_t i = 0; i < again.size(); ++i) {
      CHECK(testing::same_bits(again[i], expected[i]));
    }
  }
  CHECK(failures == allocations);
}

}  // namespace rematch
