// Many tensors in host memory, each with its own copy.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <vector>

#include "engine/autograd/backward.h"
#include "engine/checkpoint/sequential.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/view.h"
#include "engine/testing/offload_fixture.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using testing::OffloadFixture;
using testing::same_bits;
using testing::tensor;
using testing::values_off_zero;

int offload_sizes() { return GENERATE(2, 5, 17, 65, 257, 16385); }

Tensor weight() {
  Tensor w = testing::variable({1, 1}, {2});
  w.storage()->set_tag(Tag::parameters);
  return w;
}

Tensor constant(int i) { return tensor({static_cast<double>(i), i / 8.0}, {2}); }

}  // namespace

TEST_CASE_METHOD(OffloadFixture, "each of many offloaded tensors comes back as it was saved") {
  const int n = offload_sizes();
  Tensors weights;
  Tensors constants;
  Tensor y;
  {
    const OffloadScope scope(offload());
    for (int i = 0; i < n; ++i) {
      weights.push_back(weight());
      constants.push_back(constant(i));
      const Tensor part = mul(weights.back(), constants.back());
      y = y.defined() ? add(y, part) : part;
    }
  }
  CHECK(host().live(Tag::saved) == 16 * n);
  CHECK(host().allocations() == n);
  // Written since, or gone: it is the copies that count.
  for (std::size_t i = 0; i < constants.size(); ++i) {
    if (i % 3 == 0) scale_(constants[i], 100);
    if (i % 3 == 1) constants[i] = Tensor();
  }
  backward(sum(y));
  for (int i = 0; i < n; ++i) {
    if (!same_bits(weights[static_cast<std::size_t>(i)].grad(), constant(i))) FAIL("tensor " << i);
  }
}

TEST_CASE_METHOD(OffloadFixture, "many saves of one storage share a copy, also through views") {
  const int n = offload_sizes();
  const Tensor w = weight();
  const Tensor c = constant(3);
  Tensor y = w;
  {
    const OffloadScope scope(offload());
    for (int i = 0; i < n; ++i) {
      y = reshape(mul(reshape(y, {1, 2}), reshape(c, {1, 2})), {2});
      y = scale(y, 0.25);
    }
    CHECK(host().live() == 16);
    CHECK(host().allocations() == 1);
  }
  backward(sum(y));
  CHECK(host().allocations() == 1);
}

TEST_CASE_METHOD(OffloadFixture, "each of many versions of one storage has its own copy") {
  const int n = offload_sizes();
  Tensors weights;
  Tensor c = constant(1);
  Tensor y;
  {
    const OffloadScope scope(offload());
    for (int i = 0; i < n; ++i) {
      weights.push_back(weight());
      const Tensor part = mul(weights.back(), c);
      y = y.defined() ? add(y, part) : part;
      add_(c, constant(1));
    }
  }
  CHECK(host().live() == 16 * n);
  backward(sum(y));
  for (int i = 0; i < n; ++i) {
    const Tensor& got = weights[static_cast<std::size_t>(i)].grad();
    if (!same_bits(got, constant(i + 1))) FAIL("version " << i);
  }
}

TEST_CASE_METHOD(OffloadFixture,
                 "the inputs of many segments are offloaded and come back in turn") {
  const int n = GENERATE(2, 5, 17, 65, 257);
  const bool reentrant = GENERATE(false, true);
  const std::vector<Function> layers(static_cast<std::size_t>(n),
                                     [](const Tensors& in) -> Tensors { return {tanh(in[0])}; });
  const Tensor x = values_off_zero({2}, 1).set_requires_grad(true);
  const Tensor plain = values_off_zero({2}, 1).set_requires_grad(true);
  Tensor y;
  {
    const OffloadScope scope(offload());
    y = checkpoint_sequential(layers, n, {x}, LastSegment::checkpointed,
                              {.reentrant = reentrant})[0];
  }
  CHECK(host().live() == 16 * n);
  backward(sum(y));
  CHECK(host().peak() == 16 * n);
  backward(sum(compose(layers)({plain})[0]));
  CHECK(same_bits(x.grad(), plain.grad()));
}

}  // namespace rematch
