#include "engine/ops/stochastic_depth.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

#include "engine/ambient/ambient.h"
#include "engine/autograd/autocast.h"
#include "engine/autograd/backward.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/linear.h"
#include "engine/random/philox.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/saved_shapes.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using Catch::Matchers::ContainsSubstring;
using namespace testing;
using Values = std::vector<double>;

TEST_CASE_METHOD(LedgerScope,
                 "a sample keeps the branch exactly when its word is below the bound") {
  ambient().streams.seed(42);
  ambient().streams.at(0).draw(5);
  const PhiloxStream words{42, 0};
  const double p = 0.5;
  const Tensor x = Tensor::full({9, 2, 1}, DType::float32, 3);
  const Tensor y = stochastic_depth(x, tensor({5}, {1, 1}, DType::float32), p);
  int kept = 0;
  for (std::int64_t n = 0; n < 9; ++n) {
    CAPTURE(n);
    const bool keeps = words.word(8 + static_cast<std::uint64_t>(n)) < keep_threshold(p);
    kept += keeps ? 1 : 0;
    // All rows of a sample go the same way: 3 + 2 * 15, or 3.
    CHECK(y.at(2 * n) == (keeps ? 33 : 3));
    CHECK(y.at(2 * n + 1) == (keeps ? 33 : 3));
  }
  CHECK((kept > 0 && kept < 9));
  // A word for each sample, rounded up to 4.
  CHECK(ambient().streams.at(0).offset == 8 + 12);
}

TEST_CASE_METHOD(LedgerScope, "it saves as many bytes however many samples keep the branch") {
  const unsigned choice = GENERATE(1U, 2U, 3U);
  const double p = GENERATE(0.0, 0.5, 0.9);
  ambient().streams.seed(GENERATE(1U, 2U));
  CAPTURE(choice, p);
  const Tensor x = values_off_zero({4, 2, 3}, 1).set_requires_grad((choice & 1U) != 0);
  const Tensor weight = values_off_zero({3, 3}, 2).set_requires_grad((choice & 2U) != 0);
  const std::int64_t before = ambient().ledger->live();
  const SavedShapes saved;
  const Tensor y = stochastic_depth(x, weight, p);
  CHECK(ambient().ledger->live() - before == 24 * 8 + (p > 0 ? 4 * 8 : 0));
  std::vector<Shape> expected;
  if ((choice & 2U) != 0) expected.push_back(x.shape());
  if ((choice & 1U) != 0) expected.push_back(weight.shape());
  if (p > 0) expected.push_back({4});
  CHECK(saved.seen() == expected);
}

TEST_CASE_METHOD(LedgerScope, "a sample exits exactly if its first value is positive") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double least = std::numeric_limits<double>::denorm_min();
  // Two rows a sample. The second row of a sample decides nothing.
  const Tensor x = tensor({1, 2, -1, 2, 0, 1, 1, 1, -0.0, 1, 2, 2, least, 1, 1, 1}, {4, 2, 2});
  const Tensor weight = tensor({1, 1, 0, 1}, {2, 2});
  CHECK(early_exit(x, weight).to_vector() ==
        Values{1, 2, -1, 2, 1, 2, 3, 2, 1, 2, 6, 4, least, 1, 1, 1});
  const Tensor unsure = early_exit(tensor({nan, 1}, {1, 2}), tensor({0, 0, 0, 1}, {2, 2}));
  CHECK(unsure.at(0) != unsure.at(0));
  CHECK(early_exit(tensor({1, nan}, {1, 2}), weight).at(0) == 1);
  CHECK(early_exit(Tensor::ones({3, 0}, DType::float64), Tensor::ones({0, 0}, DType::float64))
            .to_vector()
            .empty());
}

TEST_CASE_METHOD(LedgerScope,
                 "a sample and the branch that it leaves out do not reach each other") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const bool exits = GENERATE(false, true);
  const auto branch = [exits](const Tensor& x, const Tensor& weight) {
    ambient().streams.seed(1);
    return exits ? early_exit(x, weight) : stochastic_depth(x, weight, 0.5);
  };
  const Tensor x = values_off_zero({16, 3}, 1).set_requires_grad(true);
  const Tensor y = branch(x, Tensor::full({3, 3}, DType::float64, nan).set_requires_grad(true));
  backward(sum(y));
  std::vector<std::int64_t> outside;
  for (std::int64_t n = 0; n < 16; ++n) {
    if (y.at(3 * n) != y.at(3 * n)) continue;
    outside.push_back(n);
    for (std::int64_t i = 3 * n; i < 3 * n + 3; ++i) {
      CHECK(y.at(i) == x.at(i));
      CHECK(x.grad().at(i) == 1);
    }
  }
  REQUIRE((!outside.empty() && outside.size() < 16));
  const auto learned = [&](double left_out) {
    Tensor samples = x.detach().clone();
    // A sample exits by its first value.
    for (const std::int64_t n : outside) samples.data<double>()[3 * n + 1] = left_out;
    const Tensor weight = values_off_zero({3, 3}, 2).set_requires_grad(true);
    backward(sum(branch(samples, weight)));
    return weight.grad();
  };
  CHECK(same_bits(learned(nan), learned(0)));
}

TEST_CASE_METHOD(LedgerScope, "what does not fit a branch is refused") {
  const Tensor x = tensor({1, 2}, {1, 2});
  const Tensor weight = Tensor::ones({2, 2}, DType::float64);
  const auto refused = [](const Tensor& a, const Tensor& w, double p, const std::string& text) {
    CHECK_THROWS_WITH(stochastic_depth(a, w, p), "[stochastic_depth] " + text);
    CHECK_THROWS_AS(stochastic_depth(a, w, p), std::invalid_argument);
  };
  refused(x, weight, 1, "probability in [0, 1) expected, got 1.000000");
  refused(x, weight, -0.5, "probability in [0, 1) expected, got -0.500000");
  refused(tensor({1, 2}, {2}), weight, 0, "input of rank 2 or more expected, got [2]");
  refused(x, Tensor::ones({2, 3}, DType::float64), 0,
          "weight of shape [2, 2] expected, got [2, 3]");
  refused(x, Tensor::ones({2, 2}, DType::float32), 0,
          "operands of one dtype expected, got float64 and float32");
  CHECK_THROWS_WITH(early_exit(tensor({1, 2}, {2}), weight),
                    "[early_exit] input of rank 2 or more expected, got [2]");
}

/// A product in bfloat16, then a branch that samples skip at random, or leave by values that a
/// dropout makes random.
struct SkippingStep {
  Tensor y;
  Tensors gradients;
};
SkippingStep step_of(bool exits, const CheckpointOptions* options) {
  ambient().streams.seed(5);
  Tensors leaves{values_off_zero({12, 4}, 1, DType::float32),
                 values_off_zero({4, 4}, 2, DType::float32),
                 values_off_zero({4, 4}, 3, DType::float32)};
  for (Tensor& t : leaves) t.set_requires_grad(true);
  const Function f = [&](const Tensors& in) -> Tensors {
    const Tensor x = linear(in[0], leaves[1]);
    return {exits ? early_exit(dropout(x, 0.5), leaves[2]) : stochastic_depth(x, leaves[2], 0.5)};
  };
  SkippingStep step;
  {
    const AutocastScope autocast;
    step.y = options != nullptr ? checkpoint(f, {leaves[0]}, *options)[0] : f({leaves[0]})[0];
  }
  // Draws in between must not matter.
  ambient().streams.at(0).draw(7);
  backward(sum(step.y));
  for (const Tensor& t : leaves) step.gradients.push_back(t.grad());
  return step;
}

TEST_CASE_METHOD(LedgerScope, "a recomputation that skips other samples says where") {
  CheckpointOptions options{.reentrant = false, .preserve_rng = false};
  options.determinism = DeterminismCheck::values;
  // The factors, of another draw.
  CHECK_THROWS_WITH(step_of(false, &options),
                    ContainsSubstring("(float32 [12]), saved after "
                                      "stochastic_depth (op 1), changed"));
  // The mask of the dropout comes before what follows from it.
  CHECK_THROWS_WITH(step_of(true, &options), ContainsSubstring("dropout (op 1), changed"));
}

}  // namespace
}  // namespace rematch
