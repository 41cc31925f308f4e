#include "engine/ops/cast.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <functional>
#include <string>
#include <vector>

#include "engine/autograd/backward.h"
#include "engine/autograd/node.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/batch_norm.h"
#include "engine/ops/delayed_scaling.h"
#include "engine/ops/dropout.h"
#include "engine/ops/embedding.h"
#include "engine/ops/group_norm.h"
#include "engine/ops/join.h"
#include "engine/ops/layer_norm.h"
#include "engine/ops/loss.h"
#include "engine/ops/noise.h"
#include "engine/ops/pool2d.h"
#include "engine/ops/recurrent.h"
#include "engine/ops/rms_norm.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/op_names.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::Message;
using namespace testing;

constexpr DType kNarrow = DType::bfloat16;
constexpr DType kWide = DType::float32;

/// Values that bfloat16 has to round.
Tensor wide_values_of(const Shape& shape, std::uint64_t seed) {
  return values_off_zero(shape, seed, kWide);
}

/// The gradient of `x` for the gradient `gy` of `y`.
Tensor gradient(const Tensor& y, const Tensor& gy, const Tensor& x) {
  return grad(std::array{y}, std::array{x}, std::array{gy})[0];
}

}  // namespace

TEST_CASE_METHOD(LedgerScope, "a cast saves nothing, and to the same dtype does nothing") {
  const Tensor x = variable({1, 2}, {2}, kWide);
  CHECK(is_same(cast(x, kWide), x));
  const Tensor y = cast(x, kNarrow);
  CHECK(ledger().live(Tag::saved) == 0);
  CHECK(y.grad_fn()->name() == "CastBackward");
  const GradMode off(false);
  CHECK(cast(x, kNarrow).is_leaf());
}

TEST_CASE_METHOD(LedgerScope, "dtypes without a cast between them are refused") {
  CHECK_THROWS_MATCHES(cast(tensor({1}, {1}), kNarrow), std::invalid_argument,
                       Message("[cast] a cast between float32 and bfloat16 expected, got one from "
                               "float64 to bfloat16"));
  CHECK_THROWS_AS(cast(tensor({1}, {1}, DType::int32), kWide), std::invalid_argument);
  CHECK_THROWS_AS(cast(tensor({1}, {1}, kNarrow), DType::float64), std::invalid_argument);
  CHECK_THROWS_AS(cast(Tensor(), kWide), std::invalid_argument);
}

TEST_CASE_METHOD(LedgerScope, "a watcher of ops is told of no cast") {
  const Tensor x = variable({1, 2}, {2}, kWide);
  OpNames ops;
  scale(cast(x, kNarrow), 2);
  CHECK(ops.names == std::vector<std::string>{"scale"});
}

TEST_CASE_METHOD(LedgerScope, "gradients in bfloat16 are added in float32 and rounded") {
  // 1 + 2^-8 is a tie that goes down to 1; 1 + 3 2^-9 lies above the middle.
  for (const auto& [a, b, sum] : {std::array{1.0, 0x1p-8, 1.0}, {1.0, 0x1.8p-8, 0x1.02p0}}) {
    const Tensor one = tensor({a}, {1}, kNarrow);
    const Tensor other = tensor({b}, {1}, kNarrow);
    Tensor leaf = tensor({5}, {1}, kNarrow).set_requires_grad(true);
    // Two uses, so a sum on the way; then again, onto the gradient that is there.
    const Tensor up = cast(leaf, kWide);
    const Tensor up_again = cast(leaf, kWide);
    const std::array roots{up, up_again};
    backward(roots, std::array{cast(one, kWide), cast(other, kWide)});
    CHECK(leaf.grad().dtype() == kNarrow);
    CHECK(leaf.grad().item() == sum);
    leaf.set_grad(one.clone());
    backward(std::array{cast(leaf, kWide)}, std::array{cast(other, kWide)});
    CHECK(leaf.grad().item() == sum);
    // A root given twice.
    leaf.set_grad({});
    backward(std::array{leaf, leaf}, std::array{one, other});
    CHECK(leaf.grad().item() == sum);
  }
}

TEST_CASE_METHOD(LedgerScope, "a hook sees the bfloat16 gradient and must return one") {
  const Tensor x = variable({3}, {1}, kWide);
  Tensor y = cast(x, kNarrow);
  y.register_hook([](const Tensor& g) { return cast(scale(g, 3), g.dtype()); });
  backward(y, {.retain_graph = true, .inputs = {}});
  CHECK(x.grad().item() == 3);
  y.register_hook([](const Tensor& g) { return scale(g, 3); });
  CHECK_THROWS_WITH(backward(y), ContainsSubstring("gradient of shape [1] bfloat16, got [1] "
                                                   "float32"));
}

namespace {

struct UpcastingOp {
  const char* name;
  Shape shape;
  std::function<Tensor(const Tensor&)> run;
};

std::vector<UpcastingOp> upcasting_ops() {
  const Tensor table = wide_values_of({3, 4}, 11);
  const Tensor ones = Tensor::ones({4}, kWide);
  const auto eval = RandomOptions{.train = false};
  return {
      {"embedding",
       {3, 4},
       [](const Tensor& x) {
         return embedding(tensor({2, 0}, {2}, DType::int32), x);
       }},
      {"delayed_scaling",
       {3, 4},
       [](const Tensor& x) {
         Tensor scale = tensor({3}, {1}, kWide);
         return delayed_scaling(x, scale, true);
       }},
      {"gru",
       {1, 3, 4},
       [](const Tensor& x) {
         return gru(x, {wide_values_of({6, 4}, 12), wide_values_of({6, 2}, 13)});
       }},
      {"lstm",
       {4, 2},
       [](const Tensor& x) {
         return lstm(wide_values_of({2, 3, 2}, 14), {x, wide_values_of({4, 1}, 15)});
       }},
      {"relu", {3, 4}, [](const Tensor& x) { return relu(x); }},
      {"gelu", {3, 4}, [](const Tensor& x) { return gelu(x); }},
      {"silu", {3, 4}, [](const Tensor& x) { return silu(x); }},
      {"tanh", {3, 4}, [](const Tensor& x) { return tanh(x); }},
      {"sigmoid", {3, 4}, [](const Tensor& x) { return sigmoid(x); }},
      {"softmax", {3, 4}, [](const Tensor& x) { return softmax(x); }},
      {"leaky_relu", {3, 4}, [](const Tensor& x) { return leaky_relu(x, 0.1); }},
      {"leaky_relu", {3, 4}, [=](const Tensor& x) { return rrelu(x, 0.1, 0.2, eval); }},
      {"add", {3, 4}, [=](const Tensor& x) { return add(x, table); }},
      {"add", {3, 4}, [=](const Tensor& x) { return add(table, x); }},
      {"mul", {3, 4}, [=](const Tensor& x) { return mul(x, table); }},
      {"scale", {3, 4}, [](const Tensor& x) { return scale(x, 0.3); }},
      {"sum", {3, 4}, [](const Tensor& x) { return sum(x); }},
      {"concat", {3, 4}, [=](const Tensor& x) { return concat(x, table); }},
      {"concat", {3, 4}, [=](const Tensor& x) { return concat(table, x); }},
      {"split", {3, 4}, [](const Tensor& x) { return split(x, 1)[1]; }},
      {"max_pool2d", {1, 1, 4, 4}, [](const Tensor& x) { return max_pool2d(x, 2, 2); }},
      {"avg_pool2d", {1, 1, 4, 4}, [](const Tensor& x) { return avg_pool2d(x, 2, 2); }},
      {"layer_norm", {3, 4}, [=](const Tensor& x) { return layer_norm(x, ones, ones); }},
      {"layer_norm", {4}, [=](const Tensor& w) { return layer_norm(table, w, ones); }},
      {"layer_norm", {4}, [=](const Tensor& b) { return layer_norm(table, ones, b); }},
      {"rms_norm", {3, 4}, [=](const Tensor& x) { return rms_norm(x, ones); }},
      {"rms_norm", {4}, [=](const Tensor& w) { return rms_norm(table, w); }},
      {"group_norm", {3, 4}, [=](const Tensor& x) { return group_norm(x, 2, ones, ones); }},
      {"group_norm", {4}, [=](const Tensor& w) { return group_norm(table, 2, w, ones); }},
      {"group_norm", {4}, [=](const Tensor& b) { return group_norm(table, 2, ones, b); }},
      {"batch_norm",
       {3, 4},
       [=](const Tensor& x) {
         Tensor mean = Tensor::zeros({4}, kWide);
         Tensor var = Tensor::ones({4}, kWide);
         return batch_norm(x, ones, ones, mean, var);
       }},
      {"mse_loss", {3, 4}, [=](const Tensor& x) { return mse_loss(x, table); }},
      {"cross_entropy",
       {3, 4},
       [](const Tensor& x) {
         return cross_entropy(x, tensor({0, 3, 2}, {3}, DType::int32));
       }},
      {"dropout", {3, 4}, [](const Tensor& x) { return dropout(x, 0.5); }},
      {"rrelu", {3, 4}, [](const Tensor& x) { return rrelu(x); }},
      {"gaussian_noise", {3, 4}, [](const Tensor& x) { return gaussian_noise(x, 0.5); }},
  };
}

}  // namespace

TEST_CASE_METHOD(LedgerScope, "every op but linear and conv2d computes on bfloat16 in float32") {
  for (const UpcastingOp& op : upcasting_ops()) {
    INFO(op.name);
    const Tensor x = values_off_zero(op.shape, 5, kNarrow).set_requires_grad(true);
    const auto run = [&](bool by_hand) {
      ambient().streams.seed(3);
      OpNames ops;
      const Tensor y = op.run(by_hand ? cast(x, kWide) : x);
      CHECK(ops.names == std::vector<std::string>{op.name});
      CHECK(y.dtype() == kWide);
      const std::int64_t saved = ledger().live(Tag::saved);
      const Tensor gx = gradient(y, wide_values_of(y.shape(), 6), x);
      CHECK(gx.dtype() == kNarrow);
      return std::tuple(y.detach(), gx, saved, ambient().streams.states());
    };
    const auto [y, gx, saved, streams] = run(false);
    const auto [expected_y, expected_gx, expected_saved, expected_streams] = run(true);
    CHECK(same_bits(y, expected_y));
    CHECK(same_bits(gx, expected_gx));
    CHECK(saved == expected_saved);
    CHECK(streams == expected_streams);
  }
}

TEST_CASE_METHOD(LedgerScope, "bfloat16 is not written in place, and the refusal says what to do") {
  const bool recording = GENERATE(false, true);
  const GradMode mode(recording);
  Tensor x = values_off_zero({3}, 5, kNarrow);
  const std::vector<double> before = x.to_vector();
  const std::string why =
      "ops compute in float32 and cannot write bfloat16 in place; use the out-of-place form, which "
      "returns float32, or cast() the tensor to float32 first";
  CHECK_THROWS_MATCHES(relu_(x), std::invalid_argument, Message("[relu_] " + why));
  CHECK_THROWS_MATCHES(scale_(x, 2), std::invalid_argument, Message("[scale_] " + why));
  CHECK_THROWS_MATCHES(add_(x, x), std::invalid_argument, Message("[add_] " + why));
  CHECK(x.to_vector() == before);
  CHECK(x.version() == 0);
  Tensor wide = tensor({1, 2, 3}, {3}, kWide);
  add_(wide, x);
  CHECK(wide.to_vector() == std::vector<double>{1 + before[0], 2 + before[1], 3 + before[2]});
}

TEST_CASE_METHOD(LedgerScope, "running statistics are not kept in bfloat16") {
  Tensor mean = Tensor::zeros({4}, kNarrow);
  Tensor var = Tensor::ones({4}, kNarrow);
  const Tensor ones = Tensor::ones({4}, kWide);
  CHECK_THROWS_MATCHES(batch_norm(wide_values_of({3, 4}, 1), ones, ones, mean, var),
                       std::invalid_argument,
                       Message("[batch_norm] operands of one dtype expected, got float32 and "
                               "bfloat16"));
}

}  // namespace rematch
