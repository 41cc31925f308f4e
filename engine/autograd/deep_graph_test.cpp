#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <functional>

#include "engine/autograd/backward.h"
#include "engine/autograd/saved_tensor.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/view.h"
#include "engine/testing/offload_fixture.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using namespace testing;

// A recursive destructor needs some hundred bytes of stack a node; the usual 8 MiB end well below
// this depth.
constexpr int kDepth = 200000;

/// The next tensor of a chain, from the last one and the one before.
using Link = std::function<Tensor(const Tensor& last, const Tensor& before)>;

const Link kLinks[] = {
    [](const Tensor& y, const Tensor&) { return scale(y, 1); },
    // Used twice by its successor, and further on.
    [](const Tensor& y, const Tensor&) { return scale(add(y, y), 0.5); },
    [](const Tensor& y, const Tensor& before) { return scale(add(y, before), 0.5); },
    // Written through a view in turn.
    [](const Tensor& y, const Tensor&) {
      Tensor view = reshape(y, {1, 1});
      scale_(view, 1);
      return reshape(view, {1});
    },
    // Whose saved tensor stays behind identity hooks, or goes to the host.
    [](const Tensor& y, const Tensor&) { return mul(y, y); },
    [](const Tensor& y, const Tensor&) { return mul(y, y); },
};

}  // namespace

TEST_CASE_METHOD(OffloadFixture, "a chain of any length and kind can be walked, and dropped") {
  const auto same = [](const Tensor& t) { return t; };
  FunctionHooks identity(same, same);
  const int kind = GENERATE(0, 1, 2, 3, 4, 5);
  const bool walked = kind < 4 && GENERATE(false, true);
  CAPTURE(kind, walked);
  SavedTensorHooks* const hooks[] = {nullptr, nullptr, nullptr, nullptr, &identity, &offload()};
  const HookScope scope(hooks[kind]);
  const Tensor x = variable({1}, {1});
  Tensor before = x;
  Tensor y = scale(x, 1);
  for (int i = 0; i < kDepth; ++i) before = std::exchange(y, kLinks[kind](y, before));
  before = Tensor();
  if (walked) {
    backward(y);
    CHECK(x.grad().item() == 1);
    Tensor(x).set_grad({});
  }
  y = Tensor();
  offload().finish();
  CHECK(ledger().live() == 8);
}

}  // namespace rematch
