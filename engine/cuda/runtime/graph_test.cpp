#include "engine/cuda/runtime/graph.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "engine/ambient/ambient_scope.h"
#include "engine/autograd/backward.h"
#include "engine/checkpoint/sequential.h"
#include "engine/cuda/runtime/memory.h"
#include "engine/cuda/testing/device.h"
#include "engine/nn/optimizer.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/dropout.h"
#include "engine/ops/linear.h"

namespace rematch::cuda {
namespace {

Tensor device_values(const Shape& shape, std::uint64_t seed) {
  const std::vector<float> v = testing::values<float>(shape.elements(), seed);
  return Tensor::from(std::vector<double>(v.begin(), v.end()), shape);
}

/// Two checkpointed layers with dropout and a stored one, and one step of training without an
/// optimizer: gradients are overwritten, not added to.
struct CapturedTraining {
  Tensor x = device_values({6, 8}, 1);
  Tensor w1 = device_values({8, 8}, 2).set_requires_grad(true);
  Tensor w2 = device_values({8, 8}, 3).set_requires_grad(true);
  CheckpointOptions options;

  void step() {
    w1.set_grad({});
    w2.set_grad({});
    const std::vector<Function> layers{
        [this](const Tensors& in) -> Tensors { return {dropout(linear(in[0], w1, {}), 0.5)}; },
        [this](const Tensors& in) -> Tensors { return {dropout(linear(in[0], w2, {}), 0.5)}; },
        [](const Tensors& in) -> Tensors { return {sum(mul(in[0], in[0]))}; }};
    backward(checkpoint_sequential(layers, 3, {x}, LastSegment::stored, options)[0]);
  }
  std::vector<std::vector<double>> gradients() const {
    return {w1.grad().to_vector(), w2.grad().to_vector()};
  }
};

}  // namespace

DEVICE_TEST_CASE("a captured checkpointed step gives the bits of the step itself, run after run") {
  testing::need_kept_blocks();
  const AmbientScope scope(std::make_shared<Ledger>(device_memory()), 5);
  CapturedTraining training;
  // The first segment of the reentrant variant would be frozen without this.
  training.x.set_requires_grad(true);
  training.options.reentrant = GENERATE(false, true);
  training.step();

  const Streams start = ambient().streams;
  std::vector<std::vector<std::vector<double>>> expected;
  for (int i = 0; i < 3; ++i) {
    training.x.set_grad({});
    training.step();
    expected.push_back(training.gradients());
  }
  const std::vector<Generator> end = ambient().streams.states();
  // Masks differ from step to step, so gradients do.
  CHECK(expected[0] != expected[1]);
  CHECK(expected[1] != expected[2]);

  ambient().streams = start;
  Graph graph(ambient().streams, [&] {
    training.x.set_grad({});
    training.step();
  });
  CHECK(ambient().streams.states() == start.states());
  for (int i = 0; i < 3; ++i) {
    INFO("run " << i);
    graph.run();
    CHECK(training.gradients() == expected[static_cast<std::size_t>(i)]);
  }
  CHECK(ambient().streams.states() == end);
}

DEVICE_TEST_CASE("a captured step of Adam gives the bits of the step itself, run after run") {
  if (cache_limit() == 0) SKIP("a capture cannot allocate, so blocks have to be kept");
  const AmbientScope scope(std::make_shared<Ledger>(device_memory()), 5);
  const auto weights = [](const CapturedTraining& t) {
    return std::vector<std::vector<double>>{t.w1.to_vector(), t.w2.to_vector()};
  };
  std::vector<std::vector<std::vector<double>>> expected;
  const Streams start = ambient().streams;
  {
    CapturedTraining training;
    nn::Adam adam({training.w1, training.w2}, 0.1);
    for (int i = 0; i < 5; ++i) {
      training.step();
      adam.step();
      expected.push_back(weights(training));
    }
  }
  ambient().streams = start;
  CapturedTraining training;
  nn::Adam adam({training.w1, training.w2}, 0.1);
  const auto step = [&] {
    training.step();
    adam.step();
  };
  step();
  CHECK(weights(training) == expected[0]);
  Graph graph(ambient().streams, step);
  CHECK(weights(training) == expected[0]);
  for (std::size_t i = 1; i < 4; ++i) {
    INFO("run " << i);
    graph.run();
    CHECK(weights(training) == expected[i]);
  }
  // The step itself goes on where the runs ended.
  step();
  CHECK(weights(training) == expected[4]);
}

DEVICE_TEST_CASE("a step that throws during its capture leaves the thread as it was") {
  const AmbientScope scope(std::make_shared<Ledger>(device_memory()), 5);
  const Streams start = ambient().streams;
  CHECK_THROWS_AS(Graph(ambient().streams, [] { throw std::runtime_error("broke down"); }),
                  std::runtime_error);
  CHECK(ambient().streams.states() == start.states());
  CHECK_FALSE(capturing());
  CapturedTraining training;
  CHECK_NOTHROW(training.step());
}

DEVICE_TEST_CASE("a run with reseeded streams is refused") {
  testing::need_kept_blocks();
  const AmbientScope scope(std::make_shared<Ledger>(device_memory()), 5);
  CapturedTraining training;
  training.step();
  Graph graph(ambient().streams, [&] { training.step(); });
  ambient().streams.seed(6);
  CHECK_THROWS_AS(graph.run(), DeviceError);
}

}  // namespace rematch::cuda
