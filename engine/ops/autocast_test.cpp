// linear and conv2d on bfloat16 operands, and under autocast: held against float32 ops between
// casts written out by hand, to the bit.
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <functional>

#include "engine/autograd/autocast.h"
#include "engine/autograd/backward.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/cast.h"
#include "engine/ops/conv2d.h"
#include "engine/ops/linear.h"
#include "engine/ops/view.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using Catch::Matchers::Message;
using namespace testing;

using Product = std::function<Tensor(const Tensor&, const Tensor&, const Tensor&)>;

/// linear or conv2d, with shapes of its operands.
struct Layer {
  Product op;
  Shape x;
  Shape w;
  Shape b;
  Shape y;
};

Layer layer(bool convolution) {
  if (!convolution) {
    return {[](const Tensor& x, const Tensor& w, const Tensor& b) { return linear(x, w, b); },
            {5, 19},
            {7, 19},
            {7},
            {5, 7}};
  }
  return {[](const Tensor& x, const Tensor& w, const Tensor& b) { return conv2d(x, w, b, 2, 1); },
          {2, 3, 7, 6},
          {4, 3, 3, 3},
          {4},
          {2, 4, 4, 3}};
}

/// By hand: operands rounded, the op in float32, its result rounded.
Tensor composition(const Product& op, const Tensor& x, const Tensor& w, const Tensor& b) {
  const auto rounded = [](const Tensor& t) {
    return t.defined() ? cast(cast(t, DType::bfloat16), DType::float32) : t;
  };
  return cast(op(rounded(x), rounded(w), rounded(b)), DType::bfloat16);
}

struct Outcome {
  Tensor y;
  Tensors gradients;
};

Outcome outcome(const Product& op, const Layer& l, DType dtype, bool with_bias, int needed) {
  Tensors in{values_off_zero(l.x, 1, dtype), values_off_zero(l.w, 2, dtype),
             values_off_zero(l.b, 3, dtype)};
  for (std::size_t i = 0; i < 3; ++i) in[i].set_requires_grad((needed >> i & 1) != 0);
  const Tensor y = op(in[0], in[1], with_bias ? in[2] : Tensor());
  if (y.requires_grad()) {
    backward(std::array{y}, std::array{values_off_zero(y.shape(), 4, DType::bfloat16)});
  }
  return {y.detach(), {in[0].grad(), in[1].grad(), in[2].grad()}};
}

void check_same(const Outcome& got, const Outcome& want) {
  CHECK(got.y.dtype() == DType::bfloat16);
  CHECK(same_bits(got.y, want.y));
  for (std::size_t i = 0; i < 3; ++i) CHECK(same_bits(got.gradients[i], want.gradients[i]));
}

/// Under a tag until it goes out of scope; a leaf.
Tensor parameter(const Shape& shape, std::uint64_t seed, bool trainable = true) {
  Tensor w = values_off_zero(shape, seed, DType::float32);
  w.storage()->set_tag(Tag::parameters);
  return w.set_requires_grad(trainable);
}

}  // namespace

TEST_CASE_METHOD(LedgerScope, "under autocast a product is the float32 one between casts") {
  const Layer l = layer(GENERATE(false, true));
  const bool cache = GENERATE(false, true);
  const bool with_bias = GENERATE(false, true);
  for (int needed = 0; needed < 8; ++needed) {
    INFO("requires grad: " << needed);
    const auto by_hand = [&](const Tensor& x, const Tensor& w, const Tensor& b) {
      return composition(l.op, x, w, b);
    };
    const Outcome want = outcome(by_hand, l, DType::float32, with_bias, needed);
    CHECK(want.y.shape() == l.y);
    const AutocastScope on(true, cache);
    check_same(outcome(l.op, l, DType::float32, with_bias, needed), want);
  }
}

TEST_CASE_METHOD(LedgerScope, "without autocast, and where it is off, dtypes are not mixed") {
  const Layer l = layer(GENERATE(false, true));
  const Tensor x = values_off_zero(l.x, 1, DType::bfloat16);
  const Tensor w = values_off_zero(l.w, 2, DType::float32);
  const Tensor b = values_off_zero(l.b, 3, DType::float32);
  CHECK_THROWS_AS(l.op(x, w, b), std::invalid_argument);
  CHECK_THROWS_AS(l.op(x, cast(w, DType::bfloat16), b), std::invalid_argument);
  const AutocastScope on;
  CHECK_NOTHROW(l.op(x, w, b));
  const AutocastScope off(false);
  CHECK_THROWS_AS(l.op(x, w, b), std::invalid_argument);
}

TEST_CASE_METHOD(LedgerScope, "float64 operands are left alone") {
  const Layer l = layer(GENERATE(false, true));
  const auto run = [&] {
    return l.op(values_off_zero(l.x, 1), values_off_zero(l.w, 2), values_off_zero(l.b, 3));
  };
  const Tensor want = run();
  const AutocastScope on;
  CHECK(same_bits(run(), want));
  CHECK_THROWS_MATCHES(linear(tensor({1}, {1, 1}), tensor({1}, {1, 1}, DType::float32)),
                       std::invalid_argument,
                       Message("[linear] operands of one dtype expected, got float64 and "
                               "bfloat16"));
}

TEST_CASE_METHOD(LedgerScope, "only float32 leaves that require grad and are no views are cached") {
  const AutocastScope on;
  const Tensor x = values_off_zero({3, 6}, 3, DType::float32);
  const auto cached_after = [&](const Tensor& input, const Tensor& w) {
    ambient().autocast.cache->clear();
    linear(input, w);
    return ambient().autocast.cache->size();
  };
  const Tensor w = parameter({6, 6}, 1);
  CHECK(cached_after(x, w) == 1);
  CHECK(cached_after(x, parameter({6, 6}, 1, false)) == 0);
  CHECK(cached_after(x, scale(w, 1)) == 0);
  CHECK(cached_after(x, cast(w, DType::bfloat16)) == 0);
  Tensor base = parameter({36}, 1, false);
  CHECK(cached_after(x, reshape(base, {6, 6}).set_requires_grad(true)) == 0);
  // An input is no parameter, though it be a leaf that requires grad.
  CHECK(cached_after(parameter({3, 6}, 4), parameter({6, 6}, 1, false)) == 0);
}

TEST_CASE_METHOD(LedgerScope, "a cast cache filled with recording off does not lose gradients") {
  const Tensor w = parameter({6, 6}, 1);
  const Tensor x = values_off_zero({3, 6}, 3, DType::float32);
  const AutocastScope on;
  {
    const GradMode off(false);
    linear(x, w);
  }
  CHECK(ambient().autocast.cache->size() == 1);
  backward(sum(linear(x, w)));
  CHECK(w.grad().defined());
}

}  // namespace rematch
