// Gradients that have no other owner are adopted instead of copied.
#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <string>
#include <vector>

#include "engine/autograd/backward.h"
#include "engine/ops/arithmetic.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using namespace testing;
using Values = std::vector<double>;

std::int64_t allocations_of(const std::function<void()>& work) {
  const std::int64_t before = ambient().ledger->allocations();
  work();
  return ambient().ledger->allocations() - before;
}

}  // namespace

TEST_CASE_METHOD(LedgerScope, "a sum of contributions grows in place, and a leaf takes it over") {
  const Tensor x = variable({1, 2}, {2});
  const Tensor y = add(add(scale(x, 2), scale(x, 3)), add(scale(x, 4), scale(x, 5)));
  const Tensor ones = tensor({1, 1}, {2});
  const std::int64_t peak_before = ledger().live();
  ledger().reset_peak();
  // One for each scale and none for the sums; the gradient that was given is the caller's.
  CHECK(allocations_of([&] { backward(std::span(&y, 1), std::span(&ones, 1)); }) == 4);
  CHECK(x.grad().to_vector() == Values{14, 14});
  // The sum, and what is added to it.
  CHECK(ledger().peak() == peak_before + 2 * 16);
  CHECK(ledger().live() == peak_before + 16);
}

TEST_CASE_METHOD(LedgerScope, "a gradient is added to one that is there without new memory") {
  const Tensor x = variable({1, 2}, {2});
  const Tensor y = scale(x, 2);
  const Tensor ones = tensor({1, 1}, {2});
  const auto walk = [&] {
    backward(std::span(&y, 1), std::span(&ones, 1), {.retain_graph = true});
  };
  CHECK(allocations_of(walk) == 1);
  CHECK(allocations_of(walk) == 1);
  CHECK(x.grad().to_vector() == Values{4, 4});
}

TEST_CASE_METHOD(LedgerScope, "an accumulated gradient is written under the eyes of who saved it") {
  const Tensor x = variable({1, 2}, {2});
  const Tensor y = scale(x, 2);
  backward(sum(y), {.retain_graph = true});
  const Tensor w = variable({3, 4}, {2});
  // Its vjp for w reads the gradient.
  const Tensor later = sum(mul(w, x.grad()));
  const std::uint64_t version = x.grad().version();
  backward(sum(scale(x, 2)));
  CHECK(x.grad().version() == version + 1);
  CHECK_THROWS_AS(backward(later), std::runtime_error);
}

TEST_CASE_METHOD(LedgerScope,
                 "a leaf takes its gradient as soon as it is complete, whatever its age") {
  Tensor x = variable({2}, {1});
  Tensor w = variable({3}, {1});
  // The leaf's node is older than all of the graph that is walked.
  const Tensor older = scale(w, 1);
  Tensor middle = scale(x, 5);
  const Tensor y = mul(middle, w);
  std::vector<std::string> order;
  const auto note = [&](const std::string& name) {
    return [&, name](const Tensor&) {
      order.push_back(name);
      return Tensor();
    };
  };
  x.register_hook(note("x"));
  w.register_hook(note("w"));
  middle.register_hook(note("middle"));
  backward(y);
  CHECK(order == std::vector<std::string>{"w", "middle", "x"});
}

}  // namespace rematch
