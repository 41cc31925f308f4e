// Tensors of no element, of one, and of bfloat16.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/autograd/backward.h"
#include "engine/checkpoint/sequential.h"
#include "engine/checkpoint/tensor_hash.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/cast.h"
#include "engine/ops/dropout.h"
#include "engine/ops/join.h"
#include "engine/ops/linear.h"
#include "engine/ops/noise.h"
#include "engine/ops/view.h"
#include "engine/testing/offload_fixture.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using testing::OffloadFixture;
using testing::same_bits;
using testing::values_off_zero;

enum class Way { non_reentrant, late_stop, reentrant, nested, policy, offloaded, sequential };

Way ways() {
  return GENERATE(Way::non_reentrant, Way::late_stop, Way::reentrant, Way::nested, Way::policy,
                  Way::offloaded, Way::sequential);
}

Tensors run(Way way, const Function& f, const Tensors& in, Offload& offload) {
  CheckpointOptions options{.determinism = DeterminismCheck::values};
  switch (way) {
    case Way::non_reentrant:
      return checkpoint(f, in, options);
    case Way::late_stop:
      options.early_stop = false;
      return checkpoint(f, in, options);
    case Way::reentrant:
      options.reentrant = true;
      return checkpoint(f, in, options);
    case Way::nested:
      return checkpoint([f, options](const Tensors& t) { return checkpoint(f, t, options); }, in,
                        {.reentrant = true});
    case Way::policy:
      options.policy = [](const OpInstance& op) {
        return op.index % 2 == 0 ? Keep::must_save : Keep::must_recompute;
      };
      return checkpoint(f, in, options);
    case Way::offloaded: {
      const OffloadScope scope(offload);
      return checkpoint(f, in, options);
    }
    case Way::sequential:
      return checkpoint_sequential(std::vector<Function>{f}, 1, in, LastSegment::checkpointed,
                                   options);
  }
  return {};
}

/// Every op that takes a tensor of any shape, each twice, and in place.
Tensors any_shape(const Tensors& in) {
  Tensor y = tanh(in[0]);
  for (int i = 0; i < 2; ++i) {
    y = gelu(add(relu(y), sigmoid(y)));
    y = mul(leaky_relu(silu(y), 0.25), in[0]);
    y = gaussian_noise(rrelu(dropout(y, 0.25)), 0.5);
  }
  scale_(y, 2);
  return {reshape(scale(y, 3), {y.elements()}), tanh(sum(y))};
}

/// A step with the given inputs, plain or in some way; the outputs and all gradients.
Tensors train(std::optional<Way> way, const Function& f, const Tensors& values, Offload& offload) {
  ambient().streams.seed(7);
  Tensors in;
  for (const Tensor& v : values) in.push_back(v.clone().set_requires_grad(true));
  const Tensors y = way ? run(*way, f, in, offload) : f(in);
  Tensors roots;
  for (const Tensor& t : y) roots.push_back(sum(t));
  backward(roots);
  Tensors all;
  for (const Tensor& t : y) all.push_back(t.detach());
  for (const Tensor& t : in) all.push_back(t.grad());
  return all;
}

void check_ways(const Function& f, const Tensors& values, Offload& offload) {
  const Way way = ways();
  const Tensors expected = train(std::nullopt, f, values, offload);
  const Tensors got = train(way, f, values, offload);
  REQUIRE(got.size() == expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    CAPTURE(static_cast<int>(way), i);
    REQUIRE(expected[i].defined());
    CHECK(same_bits(got[i], expected[i]));
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Tensor& gradient = got[got.size() - values.size() + i];
    CHECK(gradient.shape() == values[i].shape());
    CHECK(gradient.dtype() == values[i].dtype());
  }
}

DType dtypes() { return GENERATE(DType::float32, DType::float64, DType::bfloat16); }

}  // namespace

TEST_CASE_METHOD(OffloadFixture, "tensors of no element and of one train as in a plain run") {
  const Shape shape = GENERATE(Shape{0}, Shape{0, 3}, Shape{3, 0}, Shape{2, 0, 3}, Shape{},
                               Shape{1}, Shape{1, 1, 1, 1, 1}, Shape{2});
  const DType dtype = dtypes();
  CAPTURE(to_string(shape), to_string(dtype));
  // With one output the gradient of an empty one is all that a recomputation has to go by.
  const bool one_output = GENERATE(false, true);
  const Function f = [one_output](const Tensors& in) {
    Tensors out = any_shape(in);
    if (one_output) out.pop_back();
    return out;
  };
  check_ways(f, {values_off_zero(shape, 1, dtype)}, offload());
}

TEST_CASE_METHOD(OffloadFixture, "a batch of no rows trains as in a plain run") {
  const std::int64_t rows = GENERATE(0, 1, 2);
  const DType dtype = dtypes();
  CAPTURE(rows, to_string(dtype));
  const Function f = [](const Tensors& in) -> Tensors {
    const Tensor y = softmax(linear(in[0], in[1], in[2]));
    const auto [left, right] = split(y, 1);
    return {tanh(concat(right, left)), tanh(flatten(y))};
  };
  check_ways(f,
             {values_off_zero({rows, 3}, 1, dtype), values_off_zero({4, 3}, 2, dtype),
              values_off_zero({4}, 3, dtype)},
             offload());
}

TEST_CASE_METHOD(OffloadFixture, "regions of bfloat16 hold bfloat16 and give its gradients") {
  const Way way = ways();
  const Tensor x = values_off_zero({3, 4}, 1, DType::bfloat16).set_requires_grad(true);
  const Tensor h = cast(cast(x, DType::float32), DType::bfloat16);
  const std::int64_t live = ledger().live();
  const Tensors y = run(
      way,
      [](const Tensors& in) -> Tensors { return {cast(tanh(mul(in[0], in[0])), DType::bfloat16)}; },
      {h}, offload());
  CHECK(y[0].dtype() == DType::bfloat16);
  if (way != Way::policy && way != Way::offloaded) {
    CHECK(ledger().live() == live + y[0].bytes());
    CHECK(ledger().live(Tag::saved) == h.bytes());
    CHECK(h.bytes() == 24);
  }
  backward(y, Tensors{Tensor::ones({3, 4}, DType::bfloat16)});
  CHECK(x.grad().dtype() == DType::bfloat16);
  CHECK(testing::all_nonzero(x.grad()));
}

TEST_CASE_METHOD(OffloadFixture,
                 "an empty tensor has no bytes, a hash that depends on its shape, and clones") {
  const DType dtype = dtypes();
  const Tensor a = Tensor::ones({0, 3}, dtype);
  const Tensor b = Tensor::ones({3, 0}, dtype);
  CHECK(ledger().live() == 0);
  CHECK(tensor_hash(a) == tensor_hash(a.clone()));
  CHECK(tensor_hash(a) != tensor_hash(b));
  CHECK(same_bits(a.clone(), a));
  CHECK(a.to_vector().empty());
  CHECK(sum(a).item() == 0);
  CHECK(same_bits(reshape(a, {3, 0}), b));
}

}  // namespace rematch
