#include "engine/random/generator.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::Message;
using namespace testing;

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

TEST_CASE("each stream has its own name, place and state") {
  const std::string names[] = {"default", "one", "two"};
  Streams streams(42);
  for (int i = 0; i < 3; ++i) {
    CHECK(streams.add(names[i]) == i);
    streams.at(i).draw(4 * i);
  }
  for (int i = 0; i < 3; ++i) {
    const auto k = static_cast<std::uint64_t>(i);
    CHECK(streams.at(i) == Generator{42, k, 4 * k});
    CHECK(&streams[names[i]] == &streams.at(i));
    CHECK(streams.name(i) == names[i]);
    CHECK(streams.add(names[i]) == i);
  }
  std::vector<Generator> stored = streams.states();
  streams.seed(43);
  CHECK(streams.at(2) == Generator{43, 2, 0});
  streams.restore(stored);
  CHECK((streams.states() == stored));
  stored.pop_back();
  CHECK_THROWS_WITH(streams.restore(stored), ContainsSubstring("restore expects 3"));
}

TEST_CASE("an unknown stream is refused by name") {
  Streams streams;
  CHECK_THROWS_MATCHES(streams["noise"], std::invalid_argument,
                       Message("[streams] no random stream named \"noise\"; add() it first"));
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

}  // namespace
}  // namespace rematch
