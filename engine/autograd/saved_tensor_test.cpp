#include "engine/autograd/saved_tensor.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <functional>
#include <stdexcept>

#include "engine/autograd/backward.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/linear.h"
#include "engine/ops/view.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using Catch::Matchers::Message;
using testing::LedgerScope;
using testing::same_bits;
using testing::tensor;
using testing::variable;
using Values = std::vector<double>;

TEST_CASE_METHOD(LedgerScope, "a saved tensor that was changed in place is refused, by name") {
  const Tensor x = variable({1, 2}, {1, 2});
  Tensor input = tensor({3, 4}, {1, 2});
  const Tensor y = linear(input, x);
  scale_(input, 2);
  CHECK_THROWS_MATCHES(
      backward(y), std::runtime_error,
      Message("[LinearBackward] saved tensor of shape [1, 2] was changed by an in-place operation: "
              "version 0 expected, got 1; clone() it before the in-place write"));
}

TEST_CASE_METHOD(LedgerScope, "a change through a view, a base or a detached tensor is noticed") {
  const Tensor w = variable({1, 2}, {2});
  Tensor base = tensor({3, 4}, {2, 1});
  Tensor saved = reshape(base, {2});
  const Tensor y = sum(mul(w, saved));
  const int which = GENERATE(0, 1, 2);
  Tensor other = which == 0 ? base : which == 1 ? reshape(saved, {1, 2}) : saved.detach();
  scale_(other, 2);
  CHECK_THROWS_AS(backward(y), std::runtime_error);
}

TEST_CASE_METHOD(LedgerScope, "an output that was saved and then changed in place is refused") {
  const Tensor x = variable({1, 2}, {2});
  Tensor y = tanh(x);
  scale_(y, 2);
  CHECK_THROWS_AS(backward(sum(y)), std::runtime_error);
}

TEST_CASE_METHOD(LedgerScope, "a change of what was not saved is allowed") {
  const Tensor x = variable({1, 2}, {2});
  Tensor y = add(x, x);
  scale_(y, 3);
  backward(sum(y));
  CHECK(x.grad().to_vector() == Values{6, 6});
}

TEST_CASE_METHOD(LedgerScope, "only what the gradients in demand need is saved") {
  const Tensor x = variable({1, 2}, {2});
  Tensor constant = tensor({3, 4}, {2});
  const Tensor y = mul(x, constant);
  CHECK(ledger().live(Tag::saved) == 16);
  // x's values are not needed, since the constant gets no gradient.
  Tensor values = x.detach();
  scale_(values, 2);
  backward(sum(y));
  CHECK(x.grad().to_vector() == Values{3, 4});
}

TEST_CASE_METHOD(LedgerScope, "the graph does not keep a tensor alive that it did not save") {
  const Tensor x = variable({1, 2}, {2});
  const Tensor y = scale(add(x, x), 3);
  CHECK(ledger().live() == 32);
}

TEST_CASE_METHOD(LedgerScope, "a node that saves its own output does not keep itself alive") {
  const Tensor x = variable({1, 2}, {2});
  { const Tensor y = tanh(x); }
  CHECK(ledger().live() == 16);
}

TEST_CASE_METHOD(LedgerScope, "pack runs once a saved tensor and unpack once a use") {
  int packs = 0;
  int unpacks = 0;
  FunctionHooks hooks(
      [&](const Tensor& t) {
        ++packs;
        return t.clone();
      },
      [&](const Tensor& t) {
        ++unpacks;
        return t;
      });
  const Tensor x = variable({1, 2}, {2});
  Tensor y;
  {
    const HookScope scope(&hooks);
    y = sum(tanh(mul(x, x)));
  }
  CHECK(packs == 3);
  CHECK(unpacks == 0);
  backward(y, {.retain_graph = true});
  CHECK(unpacks == 3);
  backward(y);
  CHECK(packs == 3);
  CHECK(unpacks == 6);
}

TEST_CASE_METHOD(LedgerScope, "nothing is packed where nothing is recorded") {
  int packs = 0;
  FunctionHooks hooks(
      [&](const Tensor& t) {
        ++packs;
        return t;
      },
      [](const Tensor& t) { return t; });
  const HookScope scope(&hooks);
  tanh(tensor({1}, {1}));
  const Tensor x = variable({1}, {1});
  const GradMode off(false);
  tanh(x);
  CHECK(packs == 0);
}

TEST_CASE_METHOD(LedgerScope, "backward computes with what unpack returns") {
  FunctionHooks hooks([](const Tensor& t) { return scale(t, 10); },
                      [](const Tensor& t) { return scale(t, 2); });
  const Tensor x = variable({3}, {1});
  Tensor y;
  {
    const HookScope scope(&hooks);
    y = mul(x, tensor({5}, {1}));
  }
  backward(y);
  CHECK(x.grad().item() == 100);
}

TEST_CASE_METHOD(LedgerScope, "a pack that goes through float32 halves what is saved") {
  const auto cast = [](DType to) {
    return [to](const Tensor& t) { return Tensor::from(t.to_vector(), t.shape(), to); };
  };
  FunctionHooks hooks(cast(DType::float32), cast(DType::float64));
  const Tensor x = variable({0.25, -0.5}, {2});
  Tensor y;
  {
    const HookScope scope(&hooks);
    y = gelu(scale(x, 1));
  }
  CHECK(ledger().live(Tag::saved) == 8);
  backward(sum(y));
  const Tensor plain = variable({0.25, -0.5}, {2});
  backward(sum(gelu(plain)));
  CHECK(same_bits(x.grad(), plain.grad()));
}

TEST_CASE_METHOD(LedgerScope,
                 "hooks that keep the tensor as it is make no difference and no leak") {
  // The packed tensor is the node's own output: kept with its history it would own its owner.
  const auto same = [](const Tensor& t) { return t; };
  FunctionHooks hooks(same, same);
  const Tensor x = variable({0.5, -2}, {2});
  {
    const HookScope scope(&hooks);
    const Tensor y = tanh(relu(x));
    CHECK(ledger().live() == 48);
  }
  CHECK(ledger().live() == 16);
}

TEST_CASE_METHOD(LedgerScope, "hooks see a tensor without history") {
  FunctionHooks hooks(
      [](const Tensor& t) {
        CHECK(t.is_leaf());
        CHECK_FALSE(t.requires_grad());
        return t;
      },
      [](const Tensor& t) { return t; });
  const HookScope scope(&hooks);
  const Tensor x = variable({0.5}, {1});
  backward(mul(tanh(x), scale(x, 2)));
}

TEST_CASE_METHOD(LedgerScope, "a pack that fails leaves no node and no byte behind") {
  FunctionHooks hooks([](const Tensor&) -> Tensor { throw std::domain_error("mine"); },
                      [](const Tensor& t) { return t; });
  const Tensor x = variable({0.5}, {1});
  {
    const HookScope scope(&hooks);
    CHECK_THROWS_AS(tanh(x), std::domain_error);
  }
  CHECK(ambient().hooks == nullptr);
  CHECK(ledger().live() == 8);
}

TEST_CASE_METHOD(LedgerScope, "a moved saved tensor is held by one owner") {
  const Tensor x = tensor({1, 2}, {2});
  SavedTensor a;
  a.save(x);
  SavedTensor b = std::move(a);
  CHECK(same_bits(b.get("test"), x));
  CHECK(ledger().live(Tag::saved) == 16);
  SavedTensor c;
  const Tensor other = tensor({5}, {1});
  c.save(other);
  CHECK(ledger().live(Tag::saved) == 16 + 8);
  c = std::move(b);
  CHECK(same_bits(c.get("test"), x));
  CHECK(ledger().live(Tag::saved) == 16);
  CHECK(ledger().live() == 16 + 8);
  c.reset();
  CHECK(ledger().live(Tag::saved) == 0);
  CHECK_THROWS_AS(c.get("test"), std::logic_error);
}

TEST_CASE_METHOD(LedgerScope, "a saved tensor that moves takes its version along, or its pack") {
  Tensor x = tensor({1, 2}, {2});
  scale_(x, 3);
  FunctionHooks hooks([](const Tensor& t) { return scale(t, 2); },
                      [](const Tensor& t) { return scale(t, 5); });
  const bool packed = GENERATE(false, true);
  const Values expected = packed ? Values{30, 60} : Values{3, 6};
  SavedTensor a;
  {
    const HookScope scope(packed ? &hooks : nullptr);
    a.save(x);
  }
  SavedTensor b = std::move(a);
  CHECK(b.get("test").to_vector() == expected);
  SavedTensor c;
  c.save(tensor({5}, {1}));
  c = std::move(b);
  CHECK(c.get("test").to_vector() == expected);
  SavedTensor& itself = c;
  c = std::move(itself);
  CHECK(c.get("test").to_vector() == expected);
  CHECK(ledger().live(Tag::saved) == 16);
  scale_(x, 3);
  if (packed) {
    CHECK(c.get("test").to_vector() == expected);
  } else {
    CHECK_THROWS_AS(c.get("test"), std::runtime_error);
  }
}

TEST_CASE_METHOD(LedgerScope, "a saved tensor that saves again lets go of what it had") {
  FunctionHooks hooks([](const Tensor& t) { return t.clone(); }, [](const Tensor& t) { return t; });
  const bool packed = GENERATE(false, true);
  const bool then_packed = GENERATE(false, true);
  SavedTensor a;
  {
    const HookScope scope(packed ? &hooks : nullptr);
    a.save(tensor({1, 2, 3}, {3}));
  }
  CHECK(ledger().live(Tag::saved) == 24);
  {
    const HookScope scope(then_packed ? &hooks : nullptr);
    a.save(tensor({4, 5}, {2}));
  }
  CHECK(a.get("test").to_vector() == Values{4, 5});
  CHECK(ledger().live(Tag::saved) == 16);
  CHECK(ledger().live() == 16);
}

}  // namespace
}  // namespace rematch
