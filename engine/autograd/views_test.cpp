// A write through a view or a base is seen through all of them.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "engine/autograd/backward.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/view.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {

using namespace testing;

TEST_CASE_METHOD(LedgerScope, "a tensor and its views are one, in any order of writes") {
  // All ways to take three steps: to one of three tensors of one memory a write, recorded or not,
  // or another view in its place.
  constexpr int kSteps = 15;
  const bool constant = GENERATE(false, true);
  const Shape shapes[] = {{1}, {1, 1}, {1, 1, 1}};
  for (int way = 0; way < kSteps * kSteps * kSteps; ++way) {
    CAPTURE(constant, way);
    const Tensor x = variable({1}, {1});
    const Tensor c = variable({1}, {1});
    Tensors t{constant ? tensor({3}, {1}) : scale(x, 3)};
    for (const std::size_t i : {0U, 1U}) t.push_back(reshape(t[i], shapes[i + 1]));
    double value = 3;
    double by_x = constant ? 0 : 3;
    double by_c = 0;
    for (const int step : {way % kSteps, way / kSteps % kSteps, way / kSteps / kSteps}) {
      const auto i = static_cast<std::size_t>(step % 3);
      const bool recorded = step % 2 == 0;
      const GradMode mode(recorded || step >= 12);
      if (step >= 12) {
        t[i] = reshape(t[(i + 1) % 3], shapes[i]);
      } else if (step < 6) {
        scale_(t[i], 2);
        value *= 2;
        by_x *= recorded ? 2 : 1;
        by_c *= recorded ? 2 : 1;
      } else {
        add_(t[i], reshape(c, shapes[i]));
        value += 1;
        by_c += recorded ? 1 : 0;
      }
    }
    for (const Tensor& root : t) {
      REQUIRE(root.item() == value);
      REQUIRE(root.requires_grad() == (by_x + by_c > 0));
      if (!root.requires_grad()) continue;
      const Tensors g = grad(std::span(&root, 1), Tensors{x, c}, {}, true);
      REQUIRE((g[0].defined() ? g[0].item() : 0) == by_x);
      REQUIRE((g[1].defined() ? g[1].item() : 0) == by_c);
    }
  }
}

}  // namespace rematch
