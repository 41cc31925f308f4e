// Casts of many parameters in one cache.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <optional>
#include <vector>

#include "engine/autograd/autocast.h"
#include "engine/autograd/backward.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/linear.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using testing::leaf;
using testing::LedgerScope;
using testing::same_bits;
using testing::tensor;
using testing::values_off_zero;

Tensor downcast(std::size_t i) {
  return tensor({static_cast<double>(i % 256)}, {1}, DType::bfloat16);
}

}  // namespace

TEST_CASE_METHOD(LedgerScope, "a cache tells the casts of many parameters, and versions, apart") {
  const std::size_t n = GENERATE(2U, 5U, 17U, 65U, 257U, 65537U);
  Tensors parameters;
  CastCache cache;
  for (std::size_t i = 0; i < n; ++i) {
    parameters.push_back(tensor({1}, {1}, DType::float32));
    cache.put(parameters.back(), downcast(i));
  }
  CHECK(cache.size() == n);
  for (std::size_t i = 0; i < n; i += 2) parameters[i].storage()->bump_version();
  for (std::size_t i = 0; i < n; ++i) {
    const Tensor found = cache.find(parameters[i]);
    if (found.defined() != (i % 2 == 1)) FAIL("parameter " << i);
    if (found.defined() && !same_bits(found, downcast(i))) FAIL("parameter " << i);
    // By its storage, whichever tensor shows that.
    if (cache.find(parameters[i].detach()).defined() != found.defined()) FAIL("parameter " << i);
    if (cache.find(parameters[i].clone()).defined()) FAIL("a copy of parameter " << i);
  }
  for (std::size_t i = 0; i < n; i += 2) cache.put(parameters[i], downcast(i + 1));
  for (std::size_t i = 0; i < n; i += 2) {
    if (!same_bits(cache.find(parameters[i]), downcast(i + 1))) FAIL("parameter " << i);
  }
  // In place of the earlier version.
  CHECK(cache.size() == n);
  cache.clear();
  for (const Tensor& p : parameters) {
    if (cache.find(p).defined()) FAIL("what was cleared is found");
  }
}

TEST_CASE_METHOD(LedgerScope, "many weights under autocast are cast once and train as plain ones") {
  const std::size_t n = GENERATE(2U, 5U, 17U, 65U, 257U);
  const bool reentrant = GENERATE(false, true);
  const bool backward_inside = GENERATE(true, false);
  CAPTURE(n, reentrant, backward_inside);
  const auto gradients = [&](bool plain) {
    Tensors weights;
    for (std::size_t i = 0; i < n; ++i) weights.push_back(leaf({2, 2}, i));
    const Tensor x = leaf({1, 2}, 1000);
    const Function f = [&](const Tensors& in) -> Tensors {
      Tensor y = in[0];
      for (std::size_t i = 0; i < 2 * n; ++i) {
        y = add(y, scale(tanh(linear(y, weights[i % n])), 1.0 / 64));
      }
      return {y};
    };
    std::optional<AutocastScope> scope(std::in_place);
    const Tensor y = plain ? f({x})[0] : checkpoint(f, {x}, {.reentrant = reentrant})[0];
    CHECK(ambient().autocast.cache->size() == n);
    if (!backward_inside) scope.reset();
    backward(sum(y));
    if (backward_inside) CHECK(ambient().autocast.cache->size() == n);
    CHECK(testing::all_nonzero(x.grad()));
    Tensors all{x.grad()};
    for (const Tensor& w : weights) all.push_back(w.grad());
    return all;
  };
  const Tensors expected = gradients(true);
  const Tensors got = gradients(false);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (!same_bits(got[i], expected[i])) FAIL("gradient " << i);
  }
}

TEST_CASE_METHOD(LedgerScope, "a weight that changes is cast again, whichever of many it is") {
  const std::size_t n = GENERATE(2U, 5U, 17U, 65U);
  Tensors weights;
  for (std::size_t i = 0; i < n; ++i) weights.push_back(leaf({1, 1}, i));
  const Tensor x = Tensor::ones({1, 1}, DType::float32);
  const AutocastScope scope;
  const GradMode off(false);
  const auto outputs = [&] {
    std::vector<double> all;
    for (const Tensor& w : weights) all.push_back(linear(x, w).item());
    return all;
  };
  std::vector<double> expected = outputs();
  for (std::size_t p = 0; p < n; ++p) {
    scale_(weights[p], 2);
    expected[p] *= 2;
    CHECK(outputs() == expected);
  }
}

TEST_CASE_METHOD(LedgerScope, "scopes of autocast nest to any depth, and each ends with its own") {
  const int n = GENERATE(2, 5, 17, 65, 257);
  std::vector<std::optional<AutocastScope>> scopes(static_cast<std::size_t>(n));
  const auto enabled = [](int i) { return i % 2 == 0; };
  const auto caches = [](int i) { return i % 3 == 0; };
  const CastCache* cache = nullptr;
  for (int i = 0; i < n; ++i) {
    scopes[static_cast<std::size_t>(i)].emplace(enabled(i), caches(i));
    if (i == 0) cache = ambient().autocast.cache.get();
    CHECK(ambient().autocast.cache.get() == cache);
  }
  for (int i = n; i-- > 0;) {
    CHECK(ambient().autocast.enabled == enabled(i));
    CHECK(ambient().autocast.cache_enabled == caches(i));
    CHECK(ambient().autocast.cache.get() == cache);
    scopes[static_cast<std::size_t>(i)].reset();
  }
  CHECK(ambient().autocast.cache == nullptr);
}

}  // namespace rematch
