// checkpoint_sequential() over many layers and many segments.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <vector>

#include "engine/autograd/backward.h"
#include "engine/checkpoint/sequential.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using testing::LedgerScope;
using testing::same_bits;
using testing::values_off_zero;

/// PyTorch's rule, layer by layer: a layer is of segment floor(i / floor(n / k)), and of the last
/// one where that would be none.
std::vector<Segment> by_the_rule(int layers, int segments, LastSegment last) {
  std::vector<Segment> result;
  for (int i = 0; i < layers; ++i) {
    const int segment = std::min(i / (layers / segments), segments - 1);
    if (segment == static_cast<int>(result.size())) result.push_back({i, i, true});
    result.back().end = i + 1;
  }
  result.back().checkpointed = last == LastSegment::checkpointed;
  return result;
}

bool follows_the_rule(int layers, int segments) {
  for (const LastSegment last : {LastSegment::stored, LastSegment::checkpointed}) {
    if (correct_mechanics().partition(layers, segments, last) !=
        by_the_rule(layers, segments, last)) {
      return false;
    }
  }
  return true;
}

}  // namespace

TEST_CASE("a partition gives floor(n / k) layers to all segments but the last, for all n and k") {
  for (int n = 1; n <= 70; ++n) {
    for (int k = 1; k <= n; ++k) {
      if (!follows_the_rule(n, k)) FAIL("n " << n << " k " << k);
    }
  }
  const int n = GENERATE(255, 256, 257, 1000, 4097, 65535, 65536, 65537, 100000);
  for (const int k : {1, 2, 3, 7, 64, 128, 200, 255, 256, 257, n / 3, n / 2, n / 2 + 1, n - 1, n}) {
    if (k <= n && !follows_the_rule(n, k)) FAIL("n " << n << " k " << k);
  }
}

TEST_CASE_METHOD(LedgerScope, "thousands of layers in any number of segments train as one chain") {
  const int n = 3000;
  const int k = GENERATE(1, 2, 39, 40, 41, 100, 255, 257, 1499, 1501, 2999, 3000);
  const bool reentrant = GENERATE(false, true);
  CAPTURE(k, reentrant);
  std::vector<int> runs(n, 0);
  std::vector<Function> layers;
  for (int& count : runs) {
    layers.emplace_back([&count](const Tensors& in) -> Tensors {
      ++count;
      return {tanh(in[0])};
    });
  }
  const Tensor x = values_off_zero({1}, 1).set_requires_grad(true);
  const Tensor plain = x.detach().set_requires_grad(true);
  backward(checkpoint_sequential(layers, k, {x}, LastSegment::stored, {.reentrant = reentrant})[0]);
  std::vector<int> expected(n, 1);
  std::fill_n(expected.begin(), n / k * (k - 1), 2);
  CHECK((runs == expected));
  backward(compose(layers)({plain})[0]);
  CHECK(same_bits(x.grad(), plain.grad()));
}

}  // namespace rematch
