// Whatever compares versions tells apart those that agree in their low 32 bits.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "engine/autograd/autocast.h"
#include "engine/autograd/backward.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/view.h"
#include "engine/testing/offload_fixture.h"
#include "engine/testing/values.h"

namespace rematch {

using namespace testing;
using Catch::Matchers::ContainsSubstring;

TEST_CASE_METHOD(OffloadFixture, "a tensor that was written 2^32 times more is another") {
  constexpr std::uint64_t writes = std::uint64_t{1} << 32;
  const Tensor x = variable({3}, {1});
  Tensor c = tensor({2}, {1});
  SECTION("where a recomputation reads it, or a copy of it") {
    const bool reentrant = GENERATE(false, true);
    const int which = GENERATE(0, 1, 2);
    const Function f = [&](const Tensors& in) -> Tensors {
      return {tanh(mul(in[0], which == 0 ? in[1] : which == 1 ? c : c.clone()))};
    };
    const Tensor y =
        checkpoint(f, which == 0 ? Tensors{x, c} : Tensors{x}, {.reentrant = reentrant})[0];
    c.storage()->bump_version(writes);
    CHECK_THROWS_WITH(backward(y), ContainsSubstring("version 0 expected, got 4294967296"));
  }
  SECTION("where a policy kept it, or a recomputation made it") {
    const bool keeps = GENERATE(false, true);
    Tensor middle;
    const Function f = [&](const Tensors& in) -> Tensors {
      const Tensor h = tanh(in[0]);
      Tensor y = tanh(h);
      if (ambient().recomputing != keeps) middle = h.detach();
      // Runs after the recomputation, and before what it recomputed first is read.
      if (!ambient().recomputing && !keeps) {
        y.register_hook([&](const Tensor&) {
          middle.storage()->bump_version(writes);
          return Tensor();
        });
      }
      return {tanh(y)};
    };
    const Tensor y =
        checkpoint(f, {x}, {.policy = [keeps](const OpInstance& i) {
                     return keeps && i.index == 0 ? Keep::must_save : Keep::must_recompute;
                   }})[0];
    if (keeps) middle.storage()->bump_version(writes);
    CHECK_THROWS_WITH(backward(y), ContainsSubstring(keeps ? "was changed in place since"
                                                           : "since the recomputation"));
  }
  SECTION("in the cache of casts") {
    const Tensor w = tensor({2}, {1}, DType::float32);
    CastCache cache;
    cache.put(w, tensor({2}, {1}, DType::bfloat16));
    CHECK(cache.find(w).defined());
    w.storage()->bump_version(writes);
    CHECK_FALSE(cache.find(w).defined());
  }
  SECTION("on the host") {
    x.storage()->set_tag(Tag::parameters);
    const OffloadScope scope(offload());
    const Tensor first = mul(x, c);
    c.storage()->bump_version(writes);
    const Tensor second = mul(x, c);
    CHECK(host().allocations() == 2);
  }
  SECTION("where a view has to follow its base") {
    Tensor base = scale(x, 2);
    const Tensor view = reshape(base, {1, 1});
    scale_(base, 5);
    // All writes but one leave values and history as they are.
    base.storage()->bump_version(writes - 1);
    backward(sum(view));
    CHECK(x.grad().item() == 10);
  }
  SECTION("where it is the input of a reentrant checkpoint") {
    const Function f = [](const Tensors& in) -> Tensors {
      in[0].storage()->bump_version(writes);
      return {in[0]};
    };
    CHECK_THROWS_WITH(checkpoint(f, {x}, {.reentrant = true}),
                      ContainsSubstring("changed its input 0 in place"));
  }
}

}  // namespace rematch
