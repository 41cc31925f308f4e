// Many streams, and counters past 32 bits.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <cstdint>
#include <functional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/nn/layers.h"
#include "engine/ops/dropout.h"
#include "engine/ops/noise.h"
#include "engine/random/generator.h"
#include "engine/random/philox.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using Catch::Matchers::ContainsSubstring;
using testing::LedgerScope;
using testing::same_bits;

std::string name_of(int i) { return i == 0 ? "default" : "stream " + std::to_string(i); }

Streams many(int n, std::uint64_t seed) {
  Streams streams(seed);
  for (int i = 1; i < n; ++i) streams.add(name_of(i));
  return streams;
}

constexpr std::uint64_t kTwo32 = std::uint64_t{1} << 32;
constexpr std::uint64_t kTwo63 = std::uint64_t{1} << 63;

/// Offsets at which counters of 32 bits, of words or of blocks, turn over within a draw.
std::uint64_t offsets() {
  return GENERATE(std::uint64_t{0}, kTwo32 - 8, kTwo32, kTwo32 + 4, 4 * kTwo32 - 8, 4 * kTwo32,
                  4 * kTwo32 + 12, kTwo63 - 8, kTwo63, std::uint64_t{0} - 4096);
}

constexpr std::int64_t kElements = 40;

/// Whether dropout keeps element i of a draw.
bool keeps(const Generator& g, std::int64_t i, double p) {
  const PhiloxStream stream{g.seed, g.stream};
  return stream.word(g.offset + static_cast<std::uint64_t>(i)) < keep_threshold(p);
}

}  // namespace

TEST_CASE("each of many streams has its own name, place and state") {
  const int n = GENERATE(2, 5, 17, 65, 257, 2049);
  Streams streams = many(n, 42);
  REQUIRE(streams.size() == n);
  for (int i = 0; i < n; ++i) streams.at(i).draw(4 * i);
  for (int i = 0; i < n; ++i) {
    const auto k = static_cast<std::uint64_t>(i);
    CAPTURE(n, i);
    REQUIRE(streams.at(i) == Generator{42, k, 4 * k});
    REQUIRE(&streams[name_of(i)] == &streams.at(i));
    REQUIRE(streams.name(i) == name_of(i));
    REQUIRE(streams.add(name_of(i)) == i);
  }
  CHECK(streams.size() == n);
  const std::vector<Generator> stored = streams.states();
  streams.seed(43);
  for (int i = 0; i < n; ++i) {
    REQUIRE(streams.at(i) == Generator{43, static_cast<std::uint64_t>(i), 0});
  }
  streams.restore(stored);
  CHECK((streams.states() == stored));
  CHECK_THROWS_WITH(streams.restore(std::vector<Generator>(stored.begin(), stored.end() - 1)),
                    ContainsSubstring("restore expects " + std::to_string(n)));
}

TEST_CASE_METHOD(LedgerScope, "each of many streams draws what its subsequence says") {
  const int n = GENERATE(2, 5, 17, 65, 257);
  ambient().streams = many(n, 42);
  const Tensor x = Tensor::ones({kElements}, DType::float32);
  std::vector<std::vector<double>> masks;
  for (int i = 0; i < n; ++i) {
    const Tensor y = dropout(x, 0.5, {.stream = i});
    for (std::int64_t j = 0; j < kElements; ++j) {
      const bool kept = keeps({42, static_cast<std::uint64_t>(i), 0}, j, 0.5);
      if ((y.at(j) != 0) != kept) FAIL("stream " << i << ", element " << j);
    }
    masks.push_back(y.to_vector());
    REQUIRE(ambient().streams.at(i).offset == kElements);
  }
  std::sort(masks.begin(), masks.end());
  CHECK(std::adjacent_find(masks.begin(), masks.end()) == masks.end());
  CHECK_THROWS_WITH(dropout(x, 0.5, {.stream = n}),
                    ContainsSubstring("a position below " + std::to_string(n)));
}

TEST_CASE_METHOD(LedgerScope, "a mask uses all 64 bits of the seed and of the counter") {
  const std::uint64_t offset = offsets();
  const std::uint64_t seed = GENERATE(std::uint64_t{3}, kTwo32 + 3, 0 - std::uint64_t{3});
  const DType dtype = GENERATE(DType::float32, DType::float64);
  ambient().streams.seed(seed);
  Generator& g = ambient().streams.at(0);
  g.offset = offset;
  const Generator before = g;
  const Tensor x = Tensor::full({kElements}, dtype, -1);
  const Tensor masked = dropout(x, 0.25);
  for (std::int64_t i = 0; i < kElements; ++i) {
    CAPTURE(offset, seed, i);
    REQUIRE((masked.at(i) != 0) == keeps(before, i, 0.25));
  }
  CHECK(g == Generator{seed, 0, offset + kElements});
}

TEST_CASE_METHOD(LedgerScope, "noise uses all 64 bits of the seed, the stream and the counter") {
  const std::uint64_t offset = offsets();
  const std::uint64_t stream = GENERATE(std::uint64_t{0}, kTwo32 + 1);
  const Generator before{kTwo32 + 5, stream, offset};
  const PhiloxStream words{before.seed, before.stream};
  const auto uniform = [&](std::int64_t i) {
    return uniform_double(words.word(offset + static_cast<std::uint64_t>(i)));
  };
  CAPTURE(offset, stream);
  Generator g = before;
  Tensor filled = Tensor::empty({kElements}, DType::float64);
  nn::fill_uniform(filled, 0.5, g);
  CHECK(g == Generator{before.seed, stream, offset + kElements});
  for (std::int64_t i = 0; i < kElements; ++i) {
    REQUIRE(filled.at(i) == std::fma(1.0, uniform(i), -0.5));
  }
  // The streams draw alike: rrelu() the same uniforms, gaussian_noise() the normals of
  // fill_normal().
  ambient().streams.at(0) = before;
  const Tensor factors = rrelu(Tensor::full({kElements}, DType::float64, -1), 0, 1);
  for (std::int64_t i = 0; i < kElements; ++i) REQUIRE(factors.at(i) == -uniform(i));
  CHECK(ambient().streams.at(0) == g);
  g = before;
  Tensor normal = Tensor::empty({kElements}, DType::float64);
  nn::fill_normal(normal, g);
  ambient().streams.at(0) = before;
  const Tensor noisy = gaussian_noise(Tensor::zeros({kElements}, DType::float64), 1);
  CHECK(same_bits(noisy, normal));
  CHECK(ambient().streams.at(0) == g);
  // And other normals at an offset or stream that differs in its high words alone.
  for (Generator other : {Generator{before.seed, stream, offset ^ kTwo32},
                          Generator{before.seed, stream ^ kTwo32, offset},
                          Generator{before.seed ^ kTwo32, stream, offset}}) {
    Tensor elsewhere = Tensor::empty({kElements}, DType::float64);
    nn::fill_normal(elsewhere, other);
    CHECK_FALSE(same_bits(elsewhere, normal));
  }
}

TEST_CASE("a draw takes as many words as it is asked for, also past 2^32") {
  Generator g{1, 2, 0};
  for (const std::uint64_t words : {kTwo32 - 1, kTwo32, kTwo32 + 1, 3 * kTwo32, kTwo32 * 256}) {
    const std::uint64_t before = g.offset;
    CHECK(g.draw(static_cast<std::int64_t>(words)) == before);
    CHECK(g.offset - before == (words + 3) / 4 * 4);
  }
}

TEST_CASE("names of streams are told apart by each of their characters, however long they are") {
  const std::size_t n = GENERATE(1U, 2U, 7U, 8U, 15U, 16U, 31U, 32U, 63U, 64U, 255U, 256U, 4097U);
  const std::string name(n, 'a');
  std::set<std::string, std::greater<>> names{name, name + 'a', name.substr(1)};
  for (std::size_t p = 0; p < n; p += n / 64 + 1) {
    for (const char other : {'b', 'A', '\0'}) {
      names.insert(std::string(name).replace(p, 1, 1, other));
      names.insert(std::string(name).replace(n - 1 - p, 1, 1, other));
    }
  }
  Streams streams(42);
  for (const std::string& added : names) {
    REQUIRE_THROWS_AS(streams[added], std::invalid_argument);
    REQUIRE(streams.name(streams.add(added)) == added);
  }
  for (int i = 1; const std::string& added : names) REQUIRE(&streams[added] == &streams.at(i++));
}

}  // namespace rematch
