// Offload around checkpoints: what a segment keeps, its inputs, goes to the host.
#include "engine/autograd/offload.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <stdexcept>

#include "engine/autograd/backward.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/dropout.h"
#include "engine/ops/linear.h"
#include "engine/testing/offload_fixture.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using namespace testing;

constexpr std::int64_t kFloat = 4;

/// Four layers on 3 rows of 5, 6, 4, 7 and 2 values: tanh of a linear, with dropout behind.
struct Net {
  Net() {
    constexpr std::int64_t kWidths[] = {5, 6, 4, 7, 2};
    for (int i = 0; i < 4; ++i) {
      Tensor w = values_off_zero({kWidths[i + 1], kWidths[i]}, static_cast<std::uint64_t>(i),
                                 DType::float32);
      w.storage()->set_tag(Tag::parameters);
      weights.push_back(w.set_requires_grad(true));
    }
    x = values_off_zero({3, 5}, 9, DType::float32);
    x.storage()->set_tag(Tag::inputs);
    x.set_requires_grad(true);
  }
  Function layer(std::size_t i) {
    return [this, i](const Tensors& in) -> Tensors {
      if (++calls == throw_at) throw std::domain_error("mine");
      return {dropout(tanh(linear(in[0], weights[i])), 0.5)};
    };
  }
  Tensors gradients() const {
    Tensors all{x.grad()};
    for (const Tensor& w : weights) all.push_back(w.grad());
    return all;
  }

  Tensors weights;
  Tensor x;
  int calls = 0;
  int throw_at = 0;
};

CheckpointOptions variant(bool reentrant) {
  CheckpointOptions options;
  options.reentrant = reentrant;
  options.determinism = DeterminismCheck::values;
  return options;
}

enum class Plan { each, pairs, between, nested };

/// The layers under a plan: four segments; two of two layers; segment, plain, segment, plain; two
/// layers of which the second is a segment within, as one segment, twice.
Tensor forward(Net& net, Plan plan, bool reentrant) {
  const CheckpointOptions options = variant(reentrant);
  const auto segment = [&](Function f, const Tensors& in) {
    return checkpoint(std::move(f), in, options);
  };
  const auto then = [](Function f, Function g) -> Function {
    return [f = std::move(f), g = std::move(g)](const Tensors& in) { return g(f(in)); };
  };
  Tensors t{net.x};
  for (std::size_t i = 0; i < 4; ++i) {
    if (plan == Plan::each) t = segment(net.layer(i), t);
    if (plan == Plan::between) t = i % 2 == 0 ? segment(net.layer(i), t) : net.layer(i)(t);
    if (i % 2 != 0) continue;
    if (plan == Plan::pairs) t = segment(then(net.layer(i), net.layer(i + 1)), t);
    if (plan == Plan::nested) {
      const Function inner = [options, f = net.layer(i + 1)](const Tensors& in) {
        return checkpoint(f, in, options);
      };
      t = segment(then(net.layer(i), inner), t);
    }
  }
  return t[0];
}

/// Bytes that a plan leaves on the host: tensors handed from segment to segment or layer (the
/// model's input stays where it is), and of a plain layer tanh's output and a mask, a byte each.
std::int64_t offloaded_bytes(Plan plan) {
  switch (plan) {
    case Plan::each:
      return 3 * (6 + 4 + 7) * kFloat;
    case Plan::pairs:
    case Plan::nested:
      return 3 * 4 * kFloat;
    case Plan::between:
      return 3 * ((6 + 4 + 7) * kFloat + (4 + 2) * (kFloat + 1));
  }
  return 0;
}

Tensor offloaded_forward(Offload& offload, Net& net, Plan plan, bool reentrant) {
  ambient().streams.seed(5);
  const OffloadScope scope(offload);
  return forward(net, plan, reentrant);
}

void check_same(const Tensors& got, const Tensors& expected) {
  REQUIRE(got.size() == expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    CHECK(same_bits(got[i], expected[i]));
  }
}

/// Gradients without offload, after one backward or two.
Tensors expected_gradients(Plan plan, bool reentrant, int backwards = 1) {
  ambient().streams.seed(5);
  Net net;
  const Tensor y = sum(forward(net, plan, reentrant));
  for (int i = 0; i < backwards; ++i) backward(y, {.retain_graph = i + 1 < backwards});
  return net.gradients();
}

}  // namespace

TEST_CASE_METHOD(OffloadFixture,
                 "a checkpointed segment keeps nothing on the device but its inputs") {
  const bool reentrant = GENERATE(false, true);
  const Plan plan = GENERATE(Plan::each, Plan::pairs, Plan::between, Plan::nested);
  CAPTURE(reentrant, static_cast<int>(plan));
  Net net;
  const std::int64_t model = ledger().live();
  const std::int64_t output = 3 * 2 * kFloat;
  Tensor y = offloaded_forward(offload(), net, plan, reentrant);
  CHECK(host().live() == offloaded_bytes(plan));
  CHECK(ledger().live() == model + output);
  CHECK(ledger().live(Tag::saved) == 0);
  {
    ambient().streams.seed(5);
    const Tensor plain = forward(net, plan, reentrant);
    CHECK(same_bits(plain, y));
    CHECK(ledger().live(Tag::saved) == offloaded_bytes(plan));
  }
  backward(sum(y));
  CHECK(host().live() == 0);
  y = Tensor();
  check_same(net.gradients(), expected_gradients(plan, reentrant));
}

TEST_CASE_METHOD(OffloadFixture, "a backward that a reentrant segment refuses leaves the copies") {
  Net net;
  const Tensor y = sum(offloaded_forward(offload(), net, Plan::pairs, true));
  CHECK_THROWS_AS(grad(std::span(&y, 1), std::span(&net.x, 1)), std::invalid_argument);
  CHECK(host().live() == offloaded_bytes(Plan::pairs));
  CHECK(ledger().live(Tag::saved) == 0);
}

TEST_CASE_METHOD(OffloadFixture,
                 "a segment's input that is written later is recomputed as it was") {
  const bool reentrant = GENERATE(false, true);
  const auto gradients = [](const auto& second) {
    ambient().streams.seed(5);
    Net net;
    backward(sum(second(net, net.layer(0)({net.x})[0])));
    return net.gradients();
  };
  const Tensors got = gradients([&](Net& net, Tensor h) {
    const OffloadScope scope(offload());
    const Tensor y = checkpoint(net.layer(1), {h}, variant(reentrant))[0];
    const GradMode off(false);
    scale_(h, 3);
    return y;
  });
  check_same(got, gradients([](Net& net, const Tensor& h) { return net.layer(1)({h})[0]; }));
}

TEST_CASE("out of memory at any allocation of either memory leaves nothing in both") {
  const bool reentrant = GENERATE(false, true);
  const Plan plan = GENERATE(Plan::each, Plan::between, Plan::nested);
  CAPTURE(reentrant, static_cast<int>(plan));
  const testing::OffloadFixture fixture;
  const auto train = [&](Offload& offload) {
    Net net;
    backward(sum(offloaded_forward(offload, net, plan, reentrant)));
    return net.gradients();
  };
  std::int64_t on_device = 0;
  std::int64_t on_host = 0;
  {
    Offload offload;
    const std::int64_t before = ambient().ledger->allocations();
    const Tensors expected = train(offload);
    on_device = ambient().ledger->allocations() - before;
    on_host = offload.ledger().allocations();
    check_same(expected, expected_gradients(plan, reentrant));
  }
  REQUIRE(on_host > 0);
  for (std::int64_t k = 1; k <= on_device + on_host; ++k) {
    CAPTURE(k, on_device);
    const testing::OffloadFixture inner;
    Offload offload;
    Ledger& failing = k <= on_device ? *ambient().ledger : offload.ledger();
    failing.fail_allocation(k <= on_device ? k : k - on_device);
    CHECK_THROWS_AS(train(offload), OutOfMemory);
    CHECK(ambient().ledger->live() == 0);
    CHECK(offload.ledger().live() == 0);
    CHECK(ambient().hooks == nullptr);
    CHECK_FALSE(ambient().recomputing);
    const Tensors again = train(offload);
    check_same(again, expected_gradients(plan, reentrant));
  }
}

}  // namespace rematch
