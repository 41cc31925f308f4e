#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <memory>
#include <stdexcept>
#include <string>

#include "engine/autograd/backward.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/join.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using Catch::Matchers::Message;
using namespace testing;
using Values = std::vector<double>;

GradientHook note(std::string& log, char name) {
  return [&log, name](const Tensor&) {
    log += name;
    return Tensor();
  };
}

TEST_CASE_METHOD(LedgerScope, "a leaf's hook sees what arrives, not what was accumulated") {
  Tensor x = variable({2}, {1});
  x.set_grad(tensor({100}, {1}));
  Values seen;
  x.register_hook([&](const Tensor& g) {
    seen.push_back(g.item());
    return Tensor();
  });
  backward(scale(x, 3));
  CHECK(seen == Values{3});
  CHECK(x.grad().item() == 103);
}

TEST_CASE_METHOD(LedgerScope, "a hook is not called for an output that no gradient reaches") {
  auto [left, right] = split(variable({1, 2}, {1, 2}), 1);
  std::string log;
  left.register_hook(note(log, 'l'));
  right.register_hook(note(log, 'r'));
  backward(sum(right));
  CHECK(log == "r");
}

TEST_CASE_METHOD(LedgerScope, "a gradient that a hook keeps is not written to afterwards") {
  Tensor x = variable({2}, {1});
  Tensor kept;
  x.register_hook([&](const Tensor& g) {
    if (!kept.defined()) kept = g;
    return Tensor();
  });
  backward(scale(x, 3));
  backward(scale(x, 4));
  CHECK(x.grad().item() == 7);
  CHECK(kept.item() == 3);
}

TEST_CASE_METHOD(LedgerScope, "a tensor that a hook returns again and again is not written to") {
  Tensor x = variable({2}, {1});
  const Tensor constant = tensor({9}, {1});
  x.register_hook([&](const Tensor&) { return constant; });
  backward(scale(x, 3));
  backward(scale(x, 3));
  CHECK(x.grad().item() == 18);
  CHECK(constant.item() == 9);
}

TEST_CASE_METHOD(LedgerScope, "a replacement must have the shape and dtype of the gradient") {
  Tensor x = variable({1, 2}, {2});
  Tensor y = scale(x, 2);
  const bool leaf = GENERATE(false, true);
  (leaf ? x : y).register_hook([](const Tensor&) { return tensor({1, 2, 3}, {3}); });
  CHECK_THROWS_MATCHES(backward(sum(y)), std::invalid_argument,
                       Message("[backward] a hook must return a gradient of shape [2] float64, "
                               "got [3] float64"));
  CHECK_FALSE(x.grad().defined());
}

TEST_CASE_METHOD(LedgerScope, "a hook may register hooks, which run from the next backward on") {
  const bool leaf = GENERATE(false, true);
  Tensor x = variable({1}, {1});
  Tensor y = scale(x, 2);
  Tensor& t = leaf ? x : y;
  int late = 0;
  bool registered = false;
  // The list of hooks grows while it is being run, far beyond its capacity.
  t.register_hook([&, weak = std::weak_ptr<TensorImpl>(t.shared_impl())](const Tensor&) {
    for (int i = 0; i < 100 && !registered; ++i) {
      Tensor(weak.lock()).register_hook([&late](const Tensor&) {
        ++late;
        return Tensor();
      });
    }
    registered = true;
    return Tensor();
  });
  backward(y, {.retain_graph = true});
  CHECK(late == 0);
  backward(y);
  CHECK(late == 100);
}

TEST_CASE_METHOD(LedgerScope, "a hook may walk the graph behind its tensor by itself") {
  const Tensor x = variable({3}, {1});
  const Tensor y = mul(x, x);
  Tensor z = scale(y, 2);
  double inner = 0;
  z.register_hook([&](const Tensor&) {
    inner = grad(std::span(&y, 1), std::span(&x, 1), {}, true)[0].item();
    return Tensor();
  });
  backward(z);
  CHECK(inner == 6);
  CHECK(x.grad().item() == 12);
}

TEST_CASE_METHOD(LedgerScope, "a leaf's hooks run in every backward after they were registered") {
  // At which of these moments a hook is registered.
  for (unsigned moments = 0; moments < 1U << 8; ++moments) {
    CAPTURE(moments);
    Tensor x = variable({1}, {1});
    std::string log;
    std::string registered;
    unsigned i = 0;
    const auto moment = [&] {
      if ((moments >> i++ & 1U) == 0) return;
      registered += static_cast<char>('a' + i);
      x.register_hook(note(log, registered.back()));
    };
    const auto forward = [&] {
      moment();
      return mul(x, x);
    };
    const auto walk = [&](const Tensor& y, bool retain) {
      moment();
      log.clear();
      backward(y, {.retain_graph = retain});
      REQUIRE(log == registered);
    };
    {
      Tensor y = forward();
      walk(y, true);
      walk(forward(), false);
      x.set_grad({});
      y.register_hook([&](const Tensor&) {
        moment();
        return Tensor();
      });
      walk(y, false);
    }
    x.set_requires_grad(false).set_requires_grad(true);
    walk(forward(), false);
  }
}

}  // namespace
}  // namespace rematch
