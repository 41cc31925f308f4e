// A version counts writes, however many there are.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdint>
#include <string>

#include "engine/autograd/autocast.h"
#include "engine/autograd/backward.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/view.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/offload_fixture.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using Catch::Matchers::ContainsSubstring;
using testing::LedgerScope;
using testing::OffloadFixture;
using testing::tensor;
using testing::variable;

constexpr std::uint64_t kTwo8 = std::uint64_t{1} << 8;
constexpr std::uint64_t kTwo16 = std::uint64_t{1} << 16;
constexpr std::uint64_t kTwo32 = std::uint64_t{1} << 32;

/// Where a counter of 8, 16 or 32 bits is back to where it was, and beside.
std::uint64_t times() {
  return GENERATE(std::uint64_t{1}, kTwo8 - 1, kTwo8, kTwo8 + 1, kTwo16 - 1, kTwo16, kTwo16 + 1,
                  kTwo32 - 1, kTwo32, kTwo32 + 1, 5 * kTwo32);
}

std::string versions(std::uint64_t writes) {
  return "version 0 expected, got " + std::to_string(writes);
}

}  // namespace

TEST_CASE_METHOD(LedgerScope, "a saved tensor is refused after any number of writes") {
  const std::uint64_t n = times();
  Tensor c = tensor({2}, {1});
  const Tensor y = mul(variable({3}, {1}), c);
  c.storage()->bump_version(n);
  CHECK_THROWS_WITH(backward(y), ContainsSubstring(versions(n)));
}

TEST_CASE_METHOD(LedgerScope,
                 "a recomputation refuses a tensor that it reads after any number of writes") {
  const std::uint64_t n = times();
  const bool reentrant = GENERATE(false, true);
  enum class What { input, captured, copied };
  const What what = GENERATE(What::input, What::captured, What::copied);
  Tensor c = tensor({2}, {1});
  const Function f = [&](const Tensors& in) -> Tensors {
    return {tanh(mul(in[0], what == What::input ? in[1] : what == What::copied ? c.clone() : c))};
  };
  const Tensor x = variable({3}, {1});
  const Tensor y =
      checkpoint(f, what == What::input ? Tensors{x, c} : Tensors{x}, {.reentrant = reentrant})[0];
  c.storage()->bump_version(n);
  CHECK_THROWS_WITH(backward(y), ContainsSubstring(versions(n)));
}

TEST_CASE_METHOD(LedgerScope, "what a policy kept is refused after any number of writes") {
  const std::uint64_t n = times();
  Tensor middle;
  const Function f = [&](const Tensors& in) -> Tensors {
    const Tensor h = scale(in[0], 2);
    if (!ambient().recomputing) middle = h.detach();
    return {tanh(h)};
  };
  const Tensor y = checkpoint(f, {variable({3}, {1})}, {.policy = [](const OpInstance& i) {
                                return i.op == "scale" ? Keep::must_save : Keep::must_recompute;
                              }})[0];
  middle.storage()->bump_version(n);
  CHECK_THROWS_WITH(backward(y), ContainsSubstring("was changed in place since"));
}

TEST_CASE_METHOD(LedgerScope, "a recomputed tensor is refused after any number of writes") {
  const std::uint64_t n = times();
  Tensor recomputed;
  const Function f = [&](const Tensors& in) -> Tensors {
    const Tensor h = tanh(in[0]);
    Tensor y = tanh(h);
    if (ambient().recomputing) {
      recomputed = h.detach();
    } else {
      // Runs after the recomputation, and before what it recomputed first is read.
      y.register_hook([&](const Tensor&) {
        recomputed.storage()->bump_version(n);
        return Tensor();
      });
    }
    return {tanh(y)};
  };
  const Tensor y = checkpoint(f, {variable({3}, {1})})[0];
  CHECK_THROWS_WITH(backward(y), ContainsSubstring("since the recomputation: " + versions(n)));
}

TEST_CASE_METHOD(LedgerScope, "a view follows its base after any number of writes") {
  const std::uint64_t n = times();
  const Tensor x = variable({3}, {1});
  Tensor base = scale(x, 2);
  const Tensor view = reshape(base, {1, 1});
  scale_(base, 5);
  // All writes but one leave values and history as they are.
  base.storage()->bump_version(n - 1);
  backward(sum(view));
  CHECK(x.grad().item() == 10);
}

TEST_CASE_METHOD(LedgerScope, "a cast that was kept is out of date after any number of writes") {
  const std::uint64_t n = times();
  Tensor w = tensor({2}, {1}, DType::float32);
  CastCache cache;
  cache.put(w, tensor({2}, {1}, DType::bfloat16));
  CHECK(cache.find(w).defined());
  w.storage()->bump_version(n);
  CHECK_FALSE(cache.find(w).defined());
}

TEST_CASE_METHOD(OffloadFixture, "a copy on the host is out of date after any number of writes") {
  const std::uint64_t n = times();
  const Tensor w = variable({1}, {1});
  w.storage()->set_tag(Tag::parameters);
  Tensor c = tensor({3}, {1});
  const OffloadScope scope(offload());
  const Tensor first = mul(w, c);
  c.storage()->bump_version(n);
  const Tensor second = mul(w, c);
  CHECK(host().allocations() == 2);
}

TEST_CASE_METHOD(LedgerScope, "a reentrant checkpoint refuses any number of writes to its input") {
  const std::uint64_t n = times();
  const Function f = [&](const Tensors& in) -> Tensors {
    Tensor input = in[0];
    input.storage()->bump_version(n);
    return {in[0]};
  };
  CHECK_THROWS_WITH(checkpoint(f, {variable({3}, {1})}, {.reentrant = true}),
                    ContainsSubstring("changed its input 0 in place"));
}

TEST_CASE_METHOD(LedgerScope, "what was written any number of times before is taken as it is") {
  const std::uint64_t n = times();
  const int way = GENERATE(0, 1, 2);
  const Tensor x = variable({3}, {1});
  x.storage()->bump_version(n);
  const Function f = [&](const Tensors& in) -> Tensors {
    const Tensor h = mul(in[0], in[0]);
    h.storage()->bump_version(n);
    Tensor view = reshape(h, {1, 1});
    scale_(view, 5);
    return {mul(h, h)};
  };
  backward(way == 0 ? f({x})[0] : checkpoint(f, {x}, {.reentrant = way == 2})[0]);
  CHECK(x.grad().item() == 2700);
}

}  // namespace rematch
