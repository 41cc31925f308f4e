// Steps of training that offload what they save.

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/ambient/ambient_scope.h"
#include "engine/autograd/backward.h"
#include "engine/autograd/offload.h"
#include "engine/backend/device.h"
#include "engine/checkpoint/sequential.h"
#include "engine/cuda/runtime/graph.h"
#include "engine/cuda/runtime/offload.h"
#include "engine/cuda/testing/device.h"
#include "engine/cuda/testing/gate.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/dropout.h"
#include "engine/ops/linear.h"

namespace rematch::cuda {
namespace {

using namespace testing;
using TensorBytes = std::vector<std::byte>;

TensorBytes bytes_of(const Tensor& t) {
  TensorBytes bytes(static_cast<std::size_t>(t.bytes()));
  t.copy_to_host(bytes);
  return bytes;
}

Tensor device_values(const Shape& shape, std::uint64_t seed, Tag tag) {
  const std::vector<float> v = testing::values<float>(shape.elements(), seed);
  Tensor t = Tensor::from(std::vector<double>(v.begin(), v.end()), shape);
  t.storage()->set_tag(tag);
  return t;
}

enum class Plan { plain, reentrant, non_reentrant };

/// Four layers, stored or in two segments.
struct Training {
  explicit Training(Plan p, std::int64_t width = 40) : plan(p) {
    x = device_values({24, width}, 1, Tag::inputs).set_requires_grad(true);
    for (std::uint64_t i = 0; i < 4; ++i) {
      w.push_back(device_values({width, width}, 2 + i, Tag::parameters).set_requires_grad(true));
    }
  }
  /// `offload` may be nullptr.
  void step(Offload* offload) {
    x.set_grad({});
    for (Tensor& each : w) each.set_grad({});
    Tensor y;
    {
      std::optional<OffloadScope> scope;
      if (offload != nullptr) scope.emplace(*offload);
      y = forward();
    }
    backward(y);
  }
  std::vector<TensorBytes> gradients() const {
    std::vector<TensorBytes> all{bytes_of(x.grad())};
    for (const Tensor& each : w) all.push_back(bytes_of(each.grad()));
    return all;
  }

  Plan plan;
  Tensor x;
  Tensors w;

 private:
  Tensor forward() {
    std::vector<Function> layers;
    for (std::size_t i = 0; i < 4; ++i) {
      layers.emplace_back([this, i](const Tensors& in) -> Tensors {
        Tensor y = linear(in[0], w[i], {});
        return {dropout(i == 1 ? relu_(y) : tanh(y), 0.25)};
      });
    }
    CheckpointOptions options;
    options.reentrant = plan == Plan::reentrant;
    const Tensors y = plan == Plan::plain ? compose(layers)({x})
                                          : checkpoint_sequential(
                                                layers, 2, {x}, LastSegment::checkpointed, options);
    return sum(mul(y[0], y[0]));
  }
};

void check_bits(std::int64_t width) {
  need_device();
  const OffloadOptions options = GENERATE(OffloadOptions{}, OffloadOptions{3, 2});
  const Plan plan = GENERATE(Plan::plain, Plan::reentrant, Plan::non_reentrant);
  CAPTURE(static_cast<int>(plan), width);
  const auto ledger = std::make_shared<Ledger>(device_memory());
  ledger->set_poison(true);
  const AmbientScope scope(ledger, 5);
  Offload offload(options);
  offload.ledger().set_poison(true);
  Training training(plan, width);
  training.step(nullptr);
  const Streams start = ambient().streams;
  for (int i = 0; i < 3; ++i) {
    ambient().streams = start;
    training.step(nullptr);
    const std::vector<TensorBytes> want = training.gradients();
    ambient().streams = start;
    training.step(&offload);
    CHECK(training.gradients() == want);
    CHECK(offload.ledger().live() == 0);
    CHECK(offload.ledger().peak() > 0);
  }
}

}  // namespace

TEST_CASE("a step with offload has the bits of one without, again and again", "[gpu][offload]") {
  check_bits(40);
}

// Where kernels and copies take a while, they can overlap; those of an emulated device never do.
TEST_CASE("a long step with offload has the bits of one without", "[gpu][offload][long]") {
  check_bits(1500);
}

DEVICE_TEST_CASE("an offloaded step leaves the same trace in both ledgers on device and CPU",
                 "[offload]") {
  const OffloadOptions options = GENERATE(OffloadOptions{}, OffloadOptions{3, 2});
  const Plan plan = GENERATE(Plan::plain, Plan::reentrant, Plan::non_reentrant);
  std::vector<std::vector<LedgerEvent>> traces;
  for (const Device device : {Device::cpu, Device::cuda}) {
    const auto ledger = std::make_shared<Ledger>(memory_of(device));
    const AmbientScope scope(ledger, 5);
    Offload offload(options);
    ledger->record_timeline(true);
    offload.ledger().record_timeline(true);
    {
      Training training(plan);
      training.step(&offload);
    }
    CHECK(ledger->live() == 0);
    traces.push_back(ledger->timeline());
    traces.push_back(offload.ledger().timeline());
  }
  for (std::size_t i = 0; i < 2; ++i) {
    CAPTURE(i);
    REQUIRE(traces[i].size() == traces[i + 2].size());
    for (std::size_t j = 0; j < traces[i].size(); ++j) {
      const LedgerEvent& a = traces[i][j];
      const LedgerEvent& b = traces[i + 2][j];
      CAPTURE(j);
      CHECK((a.kind == b.kind && a.tag == b.tag && a.bytes == b.bytes));
      CHECK((a.live == b.live && a.saved == b.saved));
    }
  }
}

DEVICE_TEST_CASE("no part of an offloaded step waits for the device", "[offload]") {
  need_kept_blocks();
  const OffloadOptions options = GENERATE(OffloadOptions{}, OffloadOptions{3, 2});
  const Plan plan = GENERATE(Plan::plain, Plan::reentrant, Plan::non_reentrant);
  const AmbientScope scope(std::make_shared<Ledger>(device_memory()), 5);
  Offload offload(options);
  Training training(plan);
  // Blocks are allocated and algorithms chosen in the first.
  training.step(&offload);
  training.step(&offload);
  synchronize();
  Gate gate;
  training.step(&offload);
  gate.open();
}

DEVICE_TEST_CASE("an offloaded step can be captured, whether its scope begins within or before",
                 "[offload]") {
  need_kept_blocks();
  const OffloadOptions options = GENERATE(OffloadOptions{}, OffloadOptions{3, 2});
  const Plan plan = GENERATE(Plan::plain, Plan::reentrant, Plan::non_reentrant);
  const bool before = GENERATE(false, true);
  CAPTURE(static_cast<int>(plan), before);
  const AmbientScope scope(std::make_shared<Ledger>(device_memory()), 5);
  Offload offload(options);
  Training training(plan);
  // With a scope around, a copy is under way when the capture begins, and another when it ends.
  std::optional<OffloadScope> around;
  if (before) around.emplace(offload);
  Offload* const within = before ? nullptr : &offload;
  training.step(within);
  training.step(within);
  const Streams start = ambient().streams;
  training.step(within);
  const std::vector<TensorBytes> want = training.gradients();
  ambient().streams = start;
  Graph graph(ambient().streams, [&] { training.step(within); });
  for (int i = 0; i < 2; ++i) {
    ambient().streams = start;
    graph.run();
    CHECK(training.gradients() == want);
  }
}

DEVICE_TEST_CASE("a write in place waits for the copy out of what it overwrites", "[offload]") {
  const AmbientScope scope(std::make_shared<Ledger>(device_memory()));
  constexpr std::int64_t kElements = std::int64_t{1} << 24;
  Tensor x = Tensor::full({kElements}, DType::float32, 0.5).set_requires_grad(true);
  const auto gradient = [&](bool in_place) {
    x.set_grad({});
    Offload offload;
    Tensor y;
    {
      const OffloadScope packing(offload);
      y = tanh(x);
      y = in_place ? scale_(y, 2) : scale(y, 2);
    }
    backward(sum(y));
    return bytes_of(x.grad());
  };
  const TensorBytes want = gradient(false);
  CHECK(gradient(true) == want);
}

DEVICE_TEST_CASE("a host without room refuses, and the device goes on", "[offload]") {
  const AmbientScope scope(std::make_shared<Ledger>(device_memory()), 5);
  Offload offload;
  Training training(Plan::non_reentrant);
  training.step(nullptr);
  const std::int64_t live = ambient().ledger->live();
  offload.ledger().fail_allocation(1);
  CHECK_THROWS_AS(training.step(&offload), OutOfMemory);
  CHECK(offload.ledger().live() == 0);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  training.step(&offload);
  CHECK(ambient().ledger->live() == live);
}

}  // namespace rematch::cuda
