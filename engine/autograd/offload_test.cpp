#include "engine/autograd/offload.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <optional>
#include <stdexcept>

#include "engine/autograd/backward.h"
#include "engine/nn/layers.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/view.h"
#include "engine/testing/offload_fixture.h"
#include "engine/testing/values.h"
#include "engine/testing/watched_memory.h"

namespace rematch {
namespace {

using Catch::Matchers::Message;
using namespace testing;

/// Layers that save inputs, outputs, masks and statistics, one in place, and a square of two saves.
class Net {
 public:
  Net() {
    Generator g{3, 11, 0};
    using namespace nn;
    body_ = std::make_unique<Sequential>(std::vector<std::shared_ptr<Module>>{
        std::make_shared<Linear>(5, 6, true, DType::float32, &g),
        std::make_shared<BatchNorm>(6),
        std::make_shared<Activation>(ActivationKind::relu_in_place),
        std::make_shared<RandomLayer>(RandomKind::dropout, 0.5),
        std::make_shared<Activation>(ActivationKind::softmax),
        std::make_shared<LayerNorm>(6),
        std::make_shared<Activation>(ActivationKind::gelu),
    });
    head_ = std::make_shared<Linear>(6, 3, true, DType::float32, &g);
    x = values_off_zero({4, 5}, 1, DType::float32);
    x.storage()->set_tag(Tag::inputs);
    x.set_requires_grad(true);
  }
  Tensor forward() const {
    const Tensor h = body_->forward(x);
    return head_->forward(reshape(reshape(mul(h, h), {24}), {4, 6}));
  }
  Tensors gradients() const {
    Tensors all{x.grad().clone()};
    for (const Tensor& p : body_->parameters()) all.push_back(p.grad().clone());
    for (const Tensor& p : head_->parameters()) all.push_back(p.grad().clone());
    return all;
  }

  Tensor x;

 private:
  std::unique_ptr<nn::Sequential> body_;
  std::shared_ptr<nn::Module> head_;
};

struct Step {
  std::int64_t live = 0;
  std::int64_t saved = 0;
  std::int64_t saved_between = 0;
  std::int64_t saved_after = 0;
  Tensors gradients;
};

/// A forward and two backwards, and what is saved (with an offload: on the host) by and by.
Step step(Offload* offload) {
  ambient().streams.seed(5);
  const std::int64_t before = ambient().ledger->live();
  const Net net;
  Step s;
  const auto saved = [&] {
    return offload != nullptr ? offload->ledger().live() : ambient().ledger->live(Tag::saved);
  };
  const auto forward = [&] {
    std::optional<OffloadScope> scope;
    if (offload != nullptr) scope.emplace(*offload);
    return net.forward();
  };
  const Tensor y = forward();
  s.live = ambient().ledger->live() - before;
  s.saved = saved();
  if (offload != nullptr) CHECK(ambient().ledger->live(Tag::saved) == 0);
  const Tensor loss = sum(y);
  backward(loss, {.retain_graph = true});
  s.saved_between = saved();
  backward(loss);
  s.saved_after = saved();
  s.gradients = net.gradients();
  return s;
}

}  // namespace

TEST_CASE_METHOD(OffloadFixture, "what would be saved lies on the host, byte for byte") {
  const Step plain = step(nullptr);
  const Step offloaded = step(&offload());
  CHECK(plain.saved > 0);
  CHECK(offloaded.saved == plain.saved);
  CHECK(offloaded.live == plain.live - plain.saved);
  CHECK(offloaded.saved_between == plain.saved_between);
  CHECK(offloaded.saved_between == plain.saved);
  CHECK(offloaded.saved_after == 0);
  CHECK(host().peak() == plain.saved);
  CHECK(host().total() == plain.saved);
}

TEST_CASE_METHOD(OffloadFixture, "what has an owner besides the graph stays where it is") {
  const Tag tag = GENERATE(Tag::parameters, Tag::state, Tag::inputs, Tag::gradients);
  const Tensor x = variable({1, 2}, {2});
  Tensor other = tensor({3, 4}, {2});
  other.storage()->set_tag(tag);
  const OffloadScope scope(offload());
  const Tensor y = sum(mul(x, other));
  CHECK(host().allocations() == 0);
  CHECK(ledger().live() == 40);
  scale_(other, 2);
  CHECK_THROWS_MATCHES(
      backward(y), std::runtime_error,
      Message("[MulBackward] saved tensor of shape [2] was changed by an in-place operation: "
              "version 0 expected, got 1; clone() it before the in-place write"));
}

TEST_CASE_METHOD(OffloadFixture,
                 "a copy of old values that goes leaves that of the new ones known") {
  const Tensor w = variable({1, 2}, {2});
  w.storage()->set_tag(Tag::parameters);
  Tensor c = tensor({3, 4}, {2});
  const OffloadScope scope(offload());
  Tensor old = mul(w, c);
  scale_(c, 10);
  const Tensor y = mul(w, c);
  old = Tensor();
  CHECK(host().live() == 16);
  const Tensor z = mul(w, c);
  CHECK(host().live() == 16);
}

TEST_CASE_METHOD(OffloadFixture, "backward computes with the values as they were saved") {
  const Tensor x = variable({0.5, -2}, {2});
  Tensor y;
  {
    const OffloadScope scope(offload());
    y = tanh(x);
    scale_(y, 2);
  }
  backward(sum(y));
  const Tensor plain = variable({0.5, -2}, {2});
  backward(sum(scale(tanh(plain), 2)));
  CHECK(same_bits(x.grad(), plain.grad()));
}

TEST_CASE_METHOD(OffloadFixture, "the source of a copy lives until the next copy or the end") {
  const Tensor x = variable({1, 2}, {2});
  x.storage()->set_tag(Tag::parameters);
  {
    const OffloadScope scope(offload());
    // A scale saves nothing, and its result is dropped where it stands.
    Tensor y = mul(x, scale(x, 2));
    CHECK(ledger().live() == 48);
    CHECK(host().live() == 16);
    y = sum(y);
    // Neither a kept tensor nor a shared copy lets go of the source.
    const Tensor kept = mul(x, x);
    CHECK(ledger().live() == 56);
    const Tensor next = mul(x, scale(x, 3));
    CHECK(ledger().live() == 72);
    CHECK(host().live() == 32);
    { const OffloadScope inner(offload()); }
    CHECK(ledger().live() == 56);
    CHECK(ledger().live(Tag::saved) == 0);
  }
  CHECK(host().live() == 0);
}

TEST_CASE_METHOD(OffloadFixture, "a host without room refuses the save, and nothing stays behind") {
  const Tensor x = variable({1, 2}, {2});
  host().set_limit(15);
  {
    const OffloadScope scope(offload());
    CHECK_THROWS_AS(tanh(x), OutOfMemory);
    CHECK(ledger().live() == 16);
    host().set_limit(16);
    backward(sum(tanh(x)));
    x.storage()->set_tag(Tag::parameters);
    const Tensor y = mul(x, scale(x, 2));
    CHECK(ledger().live() == 64);
    // The attempt has let go of the last source.
    CHECK_THROWS_AS(tanh(x), OutOfMemory);
    CHECK(ledger().live() == 48);
  }
  CHECK(ambient().hooks == nullptr);
}

TEST_CASE_METHOD(OffloadFixture, "an offload may be gone before the graph that it packed for") {
  const auto host = std::make_shared<Ledger>();
  const Tensor x = variable({0.5}, {1});
  Tensor y;
  {
    Offload brief(host);
    // Without a scope the source is let go of in the end.
    const HookScope scope(&brief);
    y = tanh(tanh(x));
  }
  CHECK(host->live() == 16);
  CHECK(ledger().live() == 16);
  backward(y);
  CHECK(host->live() == 0);
}

TEST_CASE_METHOD(OffloadFixture, "offloads do not mix: each has its copies, the innermost packs") {
  Offload other;
  const Tensor x = variable({0.5}, {1});
  Tensor y;
  {
    const OffloadScope outer(offload());
    y = tanh(x);
    {
      const OffloadScope inner(other);
      y = mul(y, y);
    }
    y = sum(mul(y, y));
  }
  CHECK(host().live() == 16);
  CHECK(other.ledger().live() == 8);
  backward(y);
  CHECK(other.ledger().live() == 0);
}

TEST_CASE("an offload goes to host memory and to nowhere else") {
  CHECK_THROWS_MATCHES(Offload(nullptr), std::invalid_argument,
                       Message("[offload] a ledger of host memory expected, got none"));
  const auto device = std::make_shared<Ledger>(
      std::make_unique<testing::WatchedMemory>([](const void*) {}, Device::cuda));
  CHECK_THROWS_MATCHES(Offload(device), std::invalid_argument,
                       Message("[offload] a ledger of host memory expected, got cuda"));
}

}  // namespace rematch
