// Draws of any size from any place of any stream, against words that are looked up one by one.
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "engine/ambient/ambient.h"
#include "engine/ops/dropout.h"
#include "engine/ops/noise.h"
#include "engine/random/draw.h"
#include "engine/testing/check_property.h"
#include "engine/testing/ledger_scope.h"

namespace rematch {
namespace {

enum Kind { kDropout, kRRelu, kNoise, kKinds };

template <class T>
void check_draw(int kind, std::int64_t n, const RandomOptions& options, const Generator& before) {
  const PhiloxStream words{before.seed, before.stream};
  const auto word = [&](std::int64_t i) { return words.word(before.offset + std::uint64_t(i)); };
  const Tensor x = Tensor::full({n}, dtype_of<T>(), -1);
  const Tensor y = kind == kDropout ? dropout(x, 0.375, options)
                   : kind == kRRelu ? rrelu(x, 0.25, 0.75, options)
                                    : gaussian_noise(x, 0.5, options);
  for (std::int64_t i = 0; i < n; ++i) {
    T expected = -math::rrelu_noise<T>(-1, T(0.25), T(0.5), word(i));
    if (kind == kDropout) {
      const T factor = math::dropout_factor<T>(0.375);
      expected = math::dropout<T>(-1, factor, word(i) < keep_threshold(0.375));
    } else if (kind == kNoise) {
      const math::CosSin pair = math::normal_pair(word(i / 2 * 2), word(i / 2 * 2 + 1));
      expected = math::normal_around<T>(-1, T(0.5), i % 2 == 0 ? pair.cos : pair.sin);
    }
    if (y.data<T>()[i] != expected) RC_FAIL("element " + std::to_string(i));
  }
}

}  // namespace

TEST_CASE_METHOD(testing::LedgerScope, "whatever is drawn, element i takes word i of its stream") {
  const auto property = [] {
    namespace gen = rc::gen;
    const auto below = [](std::int64_t n) {
      return gen::resize(100, gen::inRange<std::int64_t>(0, n));
    };
    Streams& streams = ambient().streams = Streams(*gen::arbitrary<std::uint64_t>().as("seed"));
    const auto count = static_cast<int>(*below(4).as("more streams"));
    for (int i = 1; i <= count; ++i) {
      streams.add(std::to_string(i));
      // Near where a counter of 32 bits, of words or of blocks, turns over, or somewhere else.
      const int bit = *gen::element(4, 32, 34, 63).as("bit of the offset");
      streams.at(i).offset = (std::uint64_t{1} << bit) - std::uint64_t(*below(9).as("less"));
    }
    std::vector<Generator> model = streams.states();
    for (std::int64_t draws = *below(6).as("draws"); draws > 0; --draws) {
      const auto stream = static_cast<int>(*below(count + 1).as("stream"));
      const std::int64_t n = *below(1500).as("elements");
      const auto kind = static_cast<int>(*below(kKinds).as("kind"));
      Generator& g = model[static_cast<std::size_t>(stream)];
      const auto check =
          *gen::arbitrary<bool>().as("double") ? check_draw<double> : check_draw<float>;
      check(kind, n, {.stream = stream}, g);
      g.offset += static_cast<std::uint64_t>(n + 3) / 4 * 4;
      RC_ASSERT(streams.states() == model);
    }
  };
  check_property("draws", property, 500);
}

}  // namespace rematch
