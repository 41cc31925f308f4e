// Checkpoints and ops of many inputs and outputs: each has its own gradient and its own checks.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <string>
#include <vector>

#include "engine/autograd/backward.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/many_ops.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using Catch::Matchers::ContainsSubstring;
using testing::LedgerScope;
using testing::same_bits;
using testing::tensor;
using testing::values_off_zero;
using testing::variable;

/// Every `step`-th of 0..n-1, from `first` on.
struct Choice {
  std::size_t first;
  std::size_t step;
  bool has(std::size_t i) const { return i >= first && (i - first) % step == 0; }
};

/// Output i is the product of inputs i and i + 1.
Tensors products(const Tensors& in) {
  Tensors out;
  for (std::size_t i = 0; i < in.size(); ++i) {
    out.push_back(mul(tanh(in[i]), in[(i + 1) % in.size()]));
  }
  return out;
}

Tensors leaves(std::size_t n, const Choice& trained) {
  Tensors made;
  for (std::size_t i = 0; i < n; ++i) {
    made.push_back(values_off_zero({2}, i).set_requires_grad(trained.has(i)));
  }
  return made;
}

/// Those of the outputs that `used` says and that have a history.
std::vector<std::size_t> roots_of(const Tensors& outputs, const Choice& used) {
  std::vector<std::size_t> chosen;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (used.has(i) && outputs[i].requires_grad()) chosen.push_back(i);
  }
  return chosen;
}

/// Walks back from these outputs, each with its own gradient.
void walk(const Tensors& outputs, const std::vector<std::size_t>& chosen) {
  Tensors roots;
  Tensors gradients;
  for (const std::size_t i : chosen) {
    roots.push_back(outputs[i]);
    gradients.push_back(values_off_zero({2}, 1000000 + i));
  }
  backward(roots, gradients);
}

}  // namespace

TEST_CASE_METHOD(LedgerScope, "each input and output of a checkpoint has its own gradient") {
  const std::size_t n = GENERATE(2U, 5U, 17U, 65U, 257U, 1025U);
  const bool reentrant = GENERATE(false, true);
  // Inputs with their two neighbours' outputs.
  const Choice trained = GENERATE(Choice{0, 1}, Choice{1, 2}, Choice{1, 3});
  const Choice used = GENERATE(Choice{0, 1}, Choice{1, 3}, Choice{1, 1000000});
  CAPTURE(n, reentrant, trained.step, used.step);
  const Tensors x = leaves(n, trained);
  const Tensors plain = leaves(n, trained);
  const Tensors outputs = checkpoint(products, x, {.reentrant = reentrant});
  const Tensors expected = products(plain);
  REQUIRE(outputs.size() == n);
  for (std::size_t i = 0; i < n; ++i) {
    if (!same_bits(outputs[i], expected[i])) FAIL("output " << i);
    if (!reentrant && outputs[i].requires_grad() != expected[i].requires_grad()) FAIL(i);
  }
  const std::vector<std::size_t> roots = roots_of(expected, used);
  walk(outputs, roots);
  walk(expected, roots);
  for (std::size_t i = 0; i < n; ++i) {
    if (!same_bits(x[i].grad(), plain[i].grad())) FAIL("the gradient of input " << i);
  }
}

TEST_CASE_METHOD(LedgerScope, "each result of an op in a region has its own gradient") {
  testing::with_count(GENERATE(2, 5, 17, 65, 257), [&]<std::size_t N>() {
    const int variant = GENERATE(0, 1, 2);
    const std::size_t used = GENERATE(0U, 1U, 8U, 64U, 256U);
    if (used >= N) return;
    CAPTURE(N, variant, used);
    const Function f = [](const Tensors& in) -> Tensors {
      const std::array<Tensor, N> y = testing::powers<N>(in[0]);
      return {y.begin(), y.end()};
    };
    const Tensor x = variable({-1}, {1});
    Tensors y = variant == 0 ? f({x}) : checkpoint(f, {x}, {.reentrant = variant == 1});
    std::vector<std::size_t> seen;
    for (std::size_t i = 0; i < N; ++i) {
      y[i].register_hook([&seen, i](const Tensor& g) {
        seen.push_back(i);
        return scale(g, 10);
      });
    }
    // First one alone, then all that are left.
    backward(y[used], {.retain_graph = true});
    const double sign = used % 2 == 0 ? 1 : -1;
    CHECK(seen == std::vector<std::size_t>{used});
    CHECK(x.grad().item() == 10 * sign * static_cast<double>(used + 1));
    Tensor(x).set_grad({});
    Tensors gradients;
    double expected = 0;
    for (std::size_t i = 0; i < N; ++i) {
      gradients.push_back(tensor({static_cast<double>(i + 2)}, {1}));
      const double slope = static_cast<double>(i + 1) * (i % 2 == 0 ? 1 : -1);
      expected += 10 * static_cast<double>(i + 2) * slope;
    }
    seen.clear();
    backward(y, gradients);
    CHECK(seen.size() == N);
    CHECK(x.grad().item() == expected);
  });
}

TEST_CASE_METHOD(LedgerScope, "each operand of an op in a region has its own gradient") {
  testing::with_count(GENERATE(2, 5, 17, 65, 257), [&]<std::size_t N>() {
    const int variant = GENERATE(0, 1, 2);
    const Choice trained = GENERATE(Choice{0, 1}, Choice{1, 3});
    CAPTURE(N, variant, trained.step);
    Tensors x;
    for (std::size_t i = 0; i < N; ++i) {
      x.push_back(tensor({static_cast<double>(i + 3)}, {1}).set_requires_grad(trained.has(i)));
    }
    const Function f = [](const Tensors& in) -> Tensors {
      std::array<Tensor, N> operands;
      std::copy(in.begin(), in.end(), operands.begin());
      return {testing::squares(operands)};
    };
    backward(variant == 0 ? f(x)[0] : checkpoint(f, x, {.reentrant = variant == 1})[0]);
    for (std::size_t i = 0; i < N; ++i) {
      CAPTURE(i);
      REQUIRE(x[i].grad().defined() == trained.has(i));
      if (!trained.has(i)) continue;
      CHECK(x[i].grad().item() == static_cast<double>((i + 1) * (i + 3)));
    }
  });
}

TEST_CASE_METHOD(LedgerScope, "an output of integers has no gradient, wherever it stands") {
  const std::size_t n = GENERATE(2U, 5U, 17U, 65U);
  const bool reentrant = GENERATE(false, true);
  for (std::size_t p = 0; p < n; ++p) {
    CAPTURE(n, reentrant, p);
    const Function f = [&](const Tensors& in) -> Tensors {
      Tensors out = products(in);
      out[p] = Tensor::ones({2}, DType::int32);
      return out;
    };
    const Tensors x = leaves(n, {0, 1});
    const Tensors plain = leaves(n, {0, 1});
    const Tensors outputs = checkpoint(f, x, {.reentrant = reentrant});
    const Tensors expected = f(plain);
    for (std::size_t i = 0; i < n; ++i) CHECK(outputs[i].requires_grad() == (i != p));
    const std::vector<std::size_t> roots = roots_of(expected, {0, 1});
    CHECK(roots.size() == n - 1);
    walk(outputs, roots);
    walk(expected, roots);
    for (std::size_t i = 0; i < n; ++i) CHECK(same_bits(x[i].grad(), plain[i].grad()));
  }
}

TEST_CASE_METHOD(LedgerScope, "a reentrant checkpoint looks at every input and every output") {
  const std::size_t n = GENERATE(2U, 5U, 17U, 65U, 257U);
  const std::size_t step = n > 100 ? 16 : 1;
  const Tensor w = tensor({5, 6}, {2});
  for (std::size_t p = 0; p < n; p += step) {
    CAPTURE(n, p);
    const Tensors x = leaves(n, {0, 1});
    const auto run = [&](auto change) {
      return checkpoint(
          [&](const Tensors& in) {
            Tensors out = products(in);
            change(in, out);
            return out;
          },
          x, {.reentrant = true});
    };
    CHECK_THROWS_WITH(run([&](const Tensors&, Tensors& out) { out[p] = Tensor(); }),
                      ContainsSubstring("returned an undefined tensor"));
    CHECK_THROWS_WITH(run([&](const Tensors& in, Tensors&) {
                        Tensor input = in[p];
                        scale_(input, 1);
                      }),
                      ContainsSubstring("changed its input " + std::to_string(p) + " in place"));
    Tensors shared = run([&](const Tensors&, Tensors& out) { out[p] = w; });
    for (std::size_t i = 0; i < n; ++i) {
      if (i == p) {
        CHECK_THROWS_WITH(scale_(shared[i], 2), ContainsSubstring("shares its memory"));
      } else {
        CHECK_NOTHROW(scale_(shared[i], 2));
      }
    }
  }
}

TEST_CASE_METHOD(LedgerScope, "an input that requires grad is found wherever it stands") {
  const std::size_t n = GENERATE(2U, 5U, 17U, 65U, 257U);
  const bool reentrant = GENERATE(false, true);
  const std::int64_t warnings = frozen_checkpoint_warnings();
  const std::size_t step = n > 100 ? 16 : 1;
  for (std::size_t p = 0; p < n; p += step) {
    CAPTURE(n, reentrant, p);
    const Tensors x = leaves(n, {p, 1000000});
    const Tensors plain = leaves(n, {p, 1000000});
    // The first output that reads the input.
    const std::size_t output = (p + n - 1) % n;
    backward(sum(checkpoint(products, x, {.reentrant = reentrant})[output]));
    backward(sum(products(plain)[output]));
    CHECK(x[p].grad().defined());
    CHECK(same_bits(x[p].grad(), plain[p].grad()));
  }
  CHECK(frozen_checkpoint_warnings() == warnings);
}

}  // namespace rematch
