// linear and conv2d on bfloat16 operands, and under autocast: held against float32 ops between
// casts written out by hand, to the bit.
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <functional>
#include <string>
#include <vector>

#include "engine/autograd/autocast.h"
#include "engine/autograd/backward.h"
#include "engine/autograd/node.h"
#include "engine/autograd/saved_tensor.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/cast.h"
#include "engine/ops/conv2d.h"
#include "engine/ops/linear.h"
#include "engine/ops/view.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/op_names.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using Catch::Matchers::Message;
using testing::LedgerScope;
using testing::OpNames;
using testing::same_bits;
using testing::tensor;
using testing::values_off_zero;

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

/// A tensor made by an op, of a leaf that requires grad.
Tensor activation(const Shape& shape, std::uint64_t seed) {
  return scale(values_off_zero(shape, seed, DType::float32).set_requires_grad(true), 1);
}

std::int64_t saved() { return ambient().ledger->live(Tag::saved); }

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

TEST_CASE_METHOD(LedgerScope, "without autocast a product of bfloat16 operands is rounded once") {
  const Layer l = layer(GENERATE(false, true));
  const bool on = GENERATE(false, true);
  const auto by_hand = [&](const Tensor& x, const Tensor& w, const Tensor& b) {
    return composition(l.op, x, w, b);
  };
  const Outcome want = outcome(by_hand, l, DType::bfloat16, true, 7);
  const AutocastScope scope(on);
  check_same(outcome(l.op, l, DType::bfloat16, true, 7), want);
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

TEST_CASE_METHOD(LedgerScope, "under autocast a product saves two bytes an element") {
  const Layer l = layer(GENERATE(false, true));
  const bool cache = GENERATE(false, true);
  const std::int64_t x_bytes = 2 * l.x.elements();
  const std::int64_t w_bytes = 2 * l.w.elements();
  const Tensor b = parameter(l.b, 3);
  const AutocastScope on(true, cache);
  SECTION("both when both require grad") {
    const Tensor y = l.op(activation(l.x, 1), parameter(l.w, 2), b);
    CHECK(saved() == x_bytes + w_bytes);
    backward(sum(y));
    CHECK(saved() == 0);
  }
  SECTION("the weight alone when it is frozen") {
    const Tensor y = l.op(activation(l.x, 1), parameter(l.w, 2, false), b);
    CHECK(saved() == w_bytes);
  }
  SECTION("the input alone when it needs no gradient") {
    const Tensor y = l.op(values_off_zero(l.x, 1, DType::float32), parameter(l.w, 2), b);
    CHECK(saved() == x_bytes);
  }
  SECTION("an input in bfloat16 is saved as it is") {
    const Tensor x = cast(activation(l.x, 1), DType::bfloat16);
    const Tensor w = parameter(l.w, 2);
    const std::int64_t before = ledger().live();
    const Tensor y = l.op(x, w, {});
    CHECK(saved() == x_bytes + w_bytes);
    CHECK(ledger().live() == before + w_bytes + y.bytes());
  }
}

TEST_CASE_METHOD(LedgerScope,
                 "a weight that is used twice is kept once with the cache, else twice") {
  const bool cache = GENERATE(false, true);
  const bool trainable = GENERATE(false, true);
  const Tensor w = parameter({6, 6}, 1, trainable);
  {
    const AutocastScope on(true, cache);
    const Tensor x = cast(activation({3, 6}, 2), DType::bfloat16);
    const Tensor y = linear(linear(x, w), w);
    const std::int64_t inputs = trainable ? 2 * (2 * 3 * 6) : 0;
    CHECK(saved() == inputs + (cache && trainable ? 1 : 2) * (2 * 6 * 6));
  }
  CHECK(ledger().live() == w.bytes());
}

TEST_CASE_METHOD(LedgerScope, "what was cast for a parameter lives until the scope ends") {
  const Tensor w = parameter({6, 6}, 1);
  const Tensor b = parameter({6}, 2);
  {
    const AutocastScope on;
    linear(values_off_zero({3, 6}, 3, DType::float32), w, b);
    CHECK(ledger().live(Tag::temporaries) == 2 * (6 * 6 + 6));
    CHECK(ambient().autocast.cache->size() == 2);
    { const AutocastScope off(false); }
    CHECK(ambient().autocast.cache->size() == 2);
  }
  CHECK(ledger().live(Tag::temporaries) == 0);
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

TEST_CASE_METHOD(LedgerScope, "a parameter changed in place within a scope is cast again") {
  Tensor w = parameter({6, 6}, 1);
  const Tensor x = values_off_zero({3, 6}, 3, DType::float32);
  const AutocastScope on;
  linear(x, w);
  {
    const GradMode off(false);
    scale_(w, 3);
  }
  const Tensor warm = linear(x, w).detach();
  ambient().autocast.cache->clear();
  CHECK(same_bits(linear(x, w).detach(), warm));
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

namespace {

/// Notes what is saved, in order.
class SavedForms final : public SavedTensorHooks {
 public:
  std::unique_ptr<PackedTensor> pack(const Tensor& t) override {
    forms.push_back(to_string(t.shape()) + std::string(to_string(t.dtype())));
    return nullptr;
  }
  std::vector<std::string> forms;
};

struct Trace {
  std::vector<std::string> ops;
  std::vector<std::string> saved;
  std::vector<std::string> nodes;
  Tensor w;
  Tensor b;
};

}  // namespace

TEST_CASE_METHOD(LedgerScope, "a cache changes neither graph nor ops nor saved tensors nor bits") {
  const auto trace = [](bool cache, bool warm) {
    const Tensor w = parameter({6, 6}, 1);
    const Tensor b = parameter({6}, 2);
    const AutocastScope on(true, cache);
    if (warm) linear(values_off_zero({3, 6}, 5, DType::float32), w, b);
    Trace t;
    SavedForms forms;
    Tensor loss;
    {
      const HookScope hooks(&forms);
      OpNames ops;
      const Tensor h = linear(activation({3, 6}, 3), w, b);
      loss = sum(linear(tanh(linear(h, w, b)), w, b));
      t.ops = ops.names;
    }
    t.saved = forms.forms;
    std::vector<Node*> queue{loss.grad_fn().get()};
    for (std::size_t i = 0; i < queue.size(); ++i) {
      t.nodes.emplace_back(queue[i]->name());
      for (const Edge& e : queue[i]->edges) {
        if (e.node) queue.push_back(e.node.get());
      }
    }
    backward(loss);
    t.w = w.grad();
    t.b = b.grad();
    return t;
  };
  const Trace want = trace(false, false);
  CHECK(want.ops == std::vector<std::string>{"scale", "linear", "linear", "tanh", "linear", "sum"});
  for (const bool warm : {false, true}) {
    const Trace got = trace(true, warm);
    CHECK(got.ops == want.ops);
    CHECK(got.saved == want.saved);
    CHECK(got.nodes == want.nodes);
    CHECK(same_bits(got.w, want.w));
    CHECK(same_bits(got.b, want.b));
  }
}

TEST_CASE_METHOD(LedgerScope, "the gradients of a tied weight are added in float32") {
  // 1 and 2^-9: their sum is no bfloat16, and would be lost if it were added as one.
  const Tensor w = tensor({1}, {1, 1}, DType::float32).set_requires_grad(true);
  const AutocastScope on(true, GENERATE(false, true));
  const Tensor a = linear(tensor({1}, {1, 1}, DType::float32), w);
  const Tensor b = linear(tensor({0x1p-9}, {1, 1}, DType::float32), w);
  backward(sum(add(a, b)));
  CHECK(w.grad().item() == 1 + 0x1p-9);
}

}  // namespace rematch
