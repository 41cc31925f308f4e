// nn::Sequential: what it holds, and under which names.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <memory>
#include <string>
#include <vector>

#include "engine/nn/layers.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using Catch::Matchers::ContainsSubstring;
using namespace testing;
using Modules = std::vector<std::shared_ptr<nn::Module>>;

std::shared_ptr<nn::Linear> square_linear(std::int64_t width, Generator& g) {
  return std::make_shared<nn::Linear>(width, width, true, DType::float64, &g);
}

/// Linears, norms with buffers, draws and activations by turns.
Modules mixed(std::size_t n, Generator& g) {
  Modules modules;
  for (std::size_t i = 0; i < n; ++i) {
    switch (i % 5) {
      case 0:
        modules.push_back(square_linear(3, g));
        break;
      case 1:
        modules.push_back(std::make_shared<nn::BatchNorm>(3, DType::float64));
        break;
      case 2:
        modules.push_back(std::make_shared<nn::Activation>(nn::ActivationKind::tanh));
        break;
      case 3:
        modules.push_back(std::make_shared<nn::RandomLayer>(nn::RandomKind::rrelu));
        break;
      default:
        modules.push_back(std::make_shared<nn::LayerNorm>(3, DType::float64));
    }
  }
  return modules;
}

}  // namespace

TEST_CASE_METHOD(LedgerScope, "a sequence holds the parameters and buffers of all its modules") {
  const std::size_t n = GENERATE(1U, 2U, 5U, 17U, 65U, 257U);
  Generator g{3, 11, 0};
  const Modules modules = mixed(n, g);
  nn::Sequential net(modules);
  REQUIRE(net.modules().size() == n);
  std::size_t parameter = 0;
  std::size_t buffer = 0;
  for (std::size_t i = 0; i < n; ++i) {
    CAPTURE(n, i);
    REQUIRE(net.modules()[i] == modules[i]);
    const char* role = "weight";
    for (const Tensor& p : modules[i]->parameters()) {
      REQUIRE(is_same(net.parameters().at(parameter++), p));
      CHECK(p.name() == std::to_string(i) + "." + role);
      role = "bias";
    }
    for (const Tensor& b : modules[i]->buffers()) {
      REQUIRE(is_same(net.buffers().at(buffer++), b));
    }
  }
  CHECK(net.parameters().size() == parameter);
  CHECK(net.buffers().size() == buffer);
  CHECK(net.functions().size() == n);
}

TEST_CASE_METHOD(LedgerScope, "a parameter that modules share counts once, under its first name") {
  const std::size_t n = GENERATE(2U, 5U, 17U, 65U);
  Generator g{3, 11, 0};
  const auto first = square_linear(3, g);
  Modules modules{std::make_shared<nn::LayerNorm>(3, DType::float64), first};
  // The weight is shared, the bias is not.
  for (std::size_t i = 0; i < n; ++i) {
    Tensor bias = nn::parameter({3}, DType::float64).set_name("bias");
    modules.push_back(std::make_shared<nn::Linear>(first->parameters()[0], bias));
  }
  const nn::Sequential net(modules);
  REQUIRE(net.parameters().size() == 4 + n);
  for (std::size_t i = 0; i < n; ++i) {
    CHECK(net.parameters()[4 + i].name() == std::to_string(2 + i) + ".bias");
  }
  CHECK(first->parameters()[0].name() == "1.weight");
  CHECK(first->parameters()[1].name() == "1.bias");
}

TEST_CASE_METHOD(LedgerScope, "a module as a function takes exactly one input, whichever it is") {
  const std::size_t n = GENERATE(1U, 2U, 5U, 17U, 65U);
  Generator g{3, 11, 0};
  nn::Sequential net(mixed(n, g));
  const Tensor x = values_off_zero({4, 3}, 1);
  for (const Function& f : net.functions()) {
    CHECK_THROWS_WITH(f({}), ContainsSubstring("one input expected, got 0"));
    CHECK_THROWS_WITH(f({x, x}), ContainsSubstring("one input expected, got 2"));
    CHECK(f({x}).size() == 1);
  }
}

}  // namespace rematch
