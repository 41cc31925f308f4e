// Recomputations put back every random stream, however many there are and however far they have
// come.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/autograd/backward.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/noise.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using testing::LedgerScope;
using testing::same_bits;

constexpr std::uint64_t kTwo32 = std::uint64_t{1} << 32;

struct DrawnGradient {
  Tensor gradient;
  std::vector<Generator> streams;
};

/// A region that draws from each stream, between forward and backward of which each stream moves.
DrawnGradient train(int streams, std::uint64_t offset, const CheckpointOptions* options,
                    bool nested) {
  ambient().streams = Streams(7);
  for (int i = 1; i < streams; ++i) ambient().streams.add("stream " + std::to_string(i));
  for (int i = 0; i < streams; ++i) {
    ambient().streams.at(i).offset = offset + 8 * static_cast<std::uint64_t>(i);
  }
  const Function draws = [streams](const Tensors& in) -> Tensors {
    Tensor y = in[0];
    for (int i = 0; i < streams; ++i) y = tanh(rrelu(y, 0.75, 1.25, {.stream = i}));
    return {y};
  };
  const Function around = [&](const Tensors& in) -> Tensors {
    if (!nested) return draws(in);
    return draws(options != nullptr ? checkpoint(draws, in, *options) : draws(in));
  };
  const Tensor x = Tensor::full({16}, DType::float64, -0.5).set_requires_grad(true);
  const Tensor y = (options != nullptr ? checkpoint(around, {x}, *options) : around({x}))[0];
  for (int i = 0; i < streams; ++i) ambient().streams.at(i).draw(4 * (i % 3));
  backward(sum(y));
  CHECK(testing::all_nonzero(x.grad()));
  return {x.grad(), ambient().streams.states()};
}

void check_same(int streams, std::uint64_t offset) {
  const CheckpointOptions options{.reentrant = GENERATE(false, true)};
  const bool nested = GENERATE(false, true);
  CAPTURE(streams, offset, options.reentrant, nested);
  const DrawnGradient plain = train(streams, offset, nullptr, nested);
  const DrawnGradient got = train(streams, offset, &options, nested);
  CHECK(same_bits(got.gradient, plain.gradient));
  CHECK((got.streams == plain.streams));
}

}  // namespace

TEST_CASE_METHOD(LedgerScope,
                 "a region that draws from many streams trains as the plain run does") {
  check_same(GENERATE(2, 5, 17, 65, 257), 0);
}

TEST_CASE_METHOD(LedgerScope, "streams that are past 2^32 words are put back where they were") {
  check_same(3, GENERATE(kTwo32 - 64, kTwo32, 4 * kTwo32 - 64, 4 * kTwo32 + 64, kTwo32 * kTwo32 / 2,
                         0 - 16 * std::uint64_t{4096}));
}

TEST_CASE_METHOD(LedgerScope, "a region may add many streams, each when it first needs it") {
  const int n = GENERATE(2, 5, 17, 65, 257);
  const bool reentrant = GENERATE(false, true);
  const Function f = [n](const Tensors& in) -> Tensors {
    Tensor y = in[0];
    for (int i = 0; i < n; ++i) {
      const int stream = ambient().streams.add("added " + std::to_string(i));
      y = tanh(rrelu(y, 0.75, 1.25, {.stream = stream}));
    }
    return {y};
  };
  const auto gradient = [&](bool plain) {
    ambient().streams = Streams(7);
    const Tensor x = Tensor::full({16}, DType::float64, -0.5).set_requires_grad(true);
    const Tensor y = plain ? f({x})[0] : checkpoint(f, {x}, {.reentrant = reentrant})[0];
    CHECK(ambient().streams.size() == 1 + n);
    const std::vector<Generator> before = ambient().streams.states();
    backward(sum(y));
    CHECK((ambient().streams.states() == before));
    return x.grad();
  };
  CHECK(same_bits(gradient(true), gradient(false)));
}

}  // namespace rematch
