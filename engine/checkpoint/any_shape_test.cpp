// Tensors of any shape and dtype, in every way to checkpoint what is done with them.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "engine/checkpoint/testing/ways.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/dropout.h"
#include "engine/ops/join.h"
#include "engine/ops/linear.h"
#include "engine/ops/noise.h"
#include "engine/ops/view.h"
#include "engine/testing/offload_fixture.h"

namespace rematch {
namespace {

using testing::check_ways;
using testing::OffloadFixture;
using testing::Program;
using testing::Runner;
using testing::trained;
using testing::values_off_zero;

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

DType dtypes() { return GENERATE(DType::float32, DType::float64, DType::bfloat16); }

}  // namespace

TEST_CASE_METHOD(OffloadFixture, "tensors of no element, of one and of many train as plain ones") {
  // The last has more than a megabyte in every dtype, and is no multiple of a block or a word.
  const Shape shape = GENERATE(Shape{0}, Shape{0, 3}, Shape{3, 0}, Shape{2, 0, 3}, Shape{},
                               Shape{1}, Shape{1, 1, 1, 1, 1}, Shape{2}, Shape{(1 << 19) + 65537});
  const DType dtype = dtypes();
  // With one output the gradient of an empty one is all that a recomputation has to go by.
  const bool one_output = GENERATE(false, true);
  if (shape.elements() > 1000 && (one_output || dtype == DType::float64)) return;
  CAPTURE(to_string(shape), to_string(dtype), one_output);
  const Program program = [&](std::size_t /*n*/, const Runner& run) {
    const Function f = [one_output](const Tensors& in) {
      Tensors out = any_shape(in);
      if (one_output) out.pop_back();
      return out;
    };
    const Tensor x = values_off_zero(shape, 1, dtype).set_requires_grad(true);
    Tensors all = trained(run(f, {x}), {x});
    CHECK(all.back().shape() == shape);
    CHECK(all.back().dtype() == dtype);
    return all;
  };
  check_ways(program, 1, offload());
}

TEST_CASE_METHOD(OffloadFixture, "a batch of no rows trains as in a plain run") {
  const DType dtype = dtypes();
  CAPTURE(to_string(dtype));
  const Program program = [&](std::size_t rows, const Runner& run) {
    const Function f = [](const Tensors& in) -> Tensors {
      const Tensor y = softmax(linear(in[0], in[1], in[2]));
      const auto [left, right] = split(y, 1);
      return {tanh(concat(right, left)), tanh(flatten(y))};
    };
    const Tensors leaves{testing::leaf({static_cast<std::int64_t>(rows), 3}, 1, dtype),
                         testing::leaf({4, 3}, 2, dtype), testing::leaf({4}, 3, dtype)};
    return trained(run(f, leaves), leaves);
  };
  check_ways(program, GENERATE(0U, 1U, 2U), offload());
}

}  // namespace rematch
