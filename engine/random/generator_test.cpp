#include "engine/random/generator.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/nn/layers.h"
#include "engine/ops/dropout.h"
#include "engine/ops/noise.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::Message;
using testing::LedgerScope;
using testing::same_bits;

TEST_CASE("a draw takes whole blocks of four words") {
  Generator g{.seed = 1, .stream = 0, .offset = 0};
  const std::vector<std::pair<std::int64_t, std::uint64_t>> draws{{1, 4},  {4, 8},  {5, 16},
                                                                  {0, 16}, {8, 24}, {3, 28}};
  std::uint64_t before = 0;
  for (const auto& [words, after] : draws) {
    CAPTURE(words);
    CHECK(g.draw(words) == before);
    CHECK(g.offset == after);
    before = after;
  }
}

TEST_CASE("a generator is a value: what is restored draws the same again") {
  Generator g{.seed = 7, .stream = 2, .offset = 40};
  const Generator stored = g;
  const std::uint64_t first = g.draw(9);
  CHECK_FALSE(g == stored);
  g = stored;
  CHECK(g == stored);
  CHECK(g.draw(9) == first);
}

TEST_CASE("generators differ when any of seed, stream and offset does") {
  const Generator g{1, 2, 3};
  CHECK_FALSE(g == Generator{2, 2, 3});
  CHECK_FALSE(g == Generator{1, 3, 3});
  CHECK_FALSE(g == Generator{1, 2, 4});
}

TEST_CASE("streams begin with one, named default") {
  Streams streams(42);
  CHECK(streams.size() == 1);
  CHECK(streams.name(0) == "default");
  CHECK(streams["default"] == Generator{42, 0, 0});
  CHECK(&streams["default"] == &streams.at(0));
}

TEST_CASE("an unknown stream is refused by name") {
  Streams streams;
  CHECK_THROWS_MATCHES(streams["noise"], std::invalid_argument,
                       Message("[streams] no random stream named \"noise\"; add() it first"));
}

TEST_CASE("each of many streams has its own name, place and state") {
  const int n = GENERATE(2, 17, 257, 2049);
  const auto name_of = [](int i) { return i == 0 ? "default" : "stream " + std::to_string(i); };
  Streams streams(42);
  for (int i = 1; i < n; ++i) streams.add(name_of(i));
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

TEST_CASE("a draw takes as many words as it is asked for, also past 2^32") {
  constexpr std::uint64_t two32 = std::uint64_t{1} << 32;
  Generator g{1, 2, 0};
  for (const std::uint64_t words : {two32 - 1, two32, two32 + 1, 3 * two32, two32 * 256}) {
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

/// Notes the words of every draw, and what was drawn.
class Recorder final : public RunObserver {
 public:
  Recorder() { ambient().observer = this; }
  ~Recorder() override { ambient().observer = nullptr; }
  void on_draw(const Generator& before, std::int64_t elements,
               std::span<const std::byte> drawn) override {
    for (std::int64_t i = 0; i < elements; ++i) {
      const std::uint64_t word = before.offset + static_cast<std::uint64_t>(i);
      if (!words_.insert({before.stream, word}).second) repeated_ = true;
    }
    draws.emplace_back(drawn.begin(), drawn.end());
  }
  bool repeated() const { return repeated_; }
  std::size_t words() const { return words_.size(); }
  std::vector<std::vector<std::byte>> draws;

 private:
  std::set<std::pair<std::uint64_t, std::uint64_t>> words_;
  bool repeated_ = false;
};

TEST_CASE_METHOD(LedgerScope, "no word of a stream is used twice, whatever draws from it") {
  const int other = ambient().streams.add("other");
  Recorder recorder;
  std::size_t expected = 0;
  for (std::int64_t n = 1; n < 40; ++n) {
    const Tensor x = Tensor::ones({n}, DType::float32);
    dropout(x, 0.5);
    rrelu(x);
    gaussian_noise(x, 1.0);
    dropout(x, 0.5, {.stream = other});
    expected += 4 * static_cast<std::size_t>(n);
  }
  CHECK_FALSE(recorder.repeated());
  CHECK(recorder.words() == expected);
}

TEST_CASE_METHOD(LedgerScope, "restored streams repeat the same masks, advanced ones do not") {
  Recorder recorder;
  const Tensor x = Tensor::ones({64}, DType::float32);
  const std::vector<Generator> stored = ambient().streams.states();
  const Tensor first = dropout(x, 0.5);
  const Tensor second = dropout(x, 0.5);
  ambient().streams.restore(stored);
  const Tensor again = dropout(x, 0.5);
  CHECK(same_bits(first, again));
  CHECK_FALSE(same_bits(first, second));
  CHECK(recorder.draws[0] == recorder.draws[2]);
  CHECK_FALSE(recorder.draws[0] == recorder.draws[1]);
}

TEST_CASE_METHOD(LedgerScope, "a layer that does not draw leaves its stream alone") {
  const Tensor x = Tensor::ones({8}, DType::float32);
  dropout(x, 0.5, {.train = false});
  dropout(x, 0.0);
  rrelu(x, 0.1, 0.2, {.train = false});
  gaussian_noise(x, 0.0);
  CHECK(ambient().streams.at(0).offset == 0);
}

TEST_CASE_METHOD(LedgerScope, "an initialiser advances the generator it is given and no other") {
  Generator g{.seed = 5, .stream = 0, .offset = 0};
  Tensor t = Tensor::empty({7}, DType::float32);
  nn::fill_uniform(t, 0.5, g);
  CHECK(g.offset == 8);
  nn::fill_normal(t, g);
  CHECK(g.offset == 16);
  CHECK(ambient().streams.at(0).offset == 0);
}

}  // namespace
}  // namespace rematch
