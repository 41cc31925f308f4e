#include "engine/autograd/saved_tensor.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
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
using namespace testing;
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

TEST_CASE_METHOD(LedgerScope, "a saved tensor is refused after any number of writes") {
  const int bits = GENERATE(0, 8, 16, 32);
  const Tensor c = tensor({2}, {1});
  const Tensor y = mul(variable({3}, {1}), c);
  c.storage()->bump_version(std::uint64_t{1} << bits);
  CHECK_THROWS_AS(backward(y), std::runtime_error);
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
