#include "engine/random/philox.h"

#include <catch2/catch_test_macros.hpp>
#include <array>
#include <cmath>
#include <cstdint>
#include <set>

namespace rematch {
namespace {

using Words = std::array<std::uint32_t, 4>;

// kat_vectors of Random123 (Salmon et al., SC 2011).
TEST_CASE("Philox4x32-10 gives the known answers of Random123") {
  CHECK(philox4x32_10({0, 0, 0, 0}, {0, 0}) ==
        Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox4x32_10({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}) ==
        Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

// curand_init(seed, subsequence, offset), then curand(), in CUDA 13.0.
TEST_CASE("a stream gives the words that cuRAND gives") {
  struct Known {
    std::uint64_t seed;
    std::uint64_t subsequence;
    std::uint64_t offset;
    Words words;
  };
  const Known known[] = {
      {0, 0, 4, {0xf8e4cca4, 0x5cb200db, 0xb1a574eb, 0x097eff67}},
      {0, 0, 5, {0x5cb200db, 0xb1a574eb, 0x097eff67, 0x04faa329}},
      {0, 1, 0, {0x844515e1, 0xf08d6eaa, 0x0f19c053, 0x83f875f0}},
      {42, 0, 0, {0x9ceaf053, 0x77f5493b, 0x12bf50ad, 0x5742b3d7}},
      {42, 1, 0, {0x02933769, 0x2051e913, 0x3b68b038, 0xb62c409c}},
      {42, 300, 4, {0x4791f8b2, 0xa2781f1b, 0x215d5dd3, 0xaa2c37ed}},
      {0x0123456789abcdef, 0, 0, {0xb850222e, 0xc58cb04b, 0x14a7a020, 0x7a84fff9}},
  };
  for (const Known& k : known) {
    CAPTURE(k.seed, k.subsequence, k.offset);
    const PhiloxStream stream{k.seed, k.subsequence};
    for (std::uint64_t i = 0; i < 4; ++i) CHECK(stream.word(k.offset + i) == k.words[i]);
  }
}

TEST_CASE("a block holds the four words at its positions, also beyond 2^32 blocks") {
  const PhiloxStream stream{3, 5};
  for (const std::uint64_t index : {std::uint64_t{0}, std::uint64_t{17}, std::uint64_t{1} << 33}) {
    Words block{};
    stream.block(index, block.data());
    for (std::uint64_t i = 0; i < 4; ++i) CHECK(stream.word(4 * index + i) == block[i]);
  }
  // The high half of the block index takes part.
  CHECK(stream.word(0) != stream.word(std::uint64_t{4} << 32));
}

TEST_CASE("uniforms are those of curand_uniform, above zero and at most one") {
  CHECK(uniform_float(0) == 0x1p-33F);
  CHECK(uniform_float(0xffffffff) == 1.0F);
  // Seed 42: printed with nine digits, which tell any two floats apart.
  CHECK(uniform_float(0x9ceaf053) == 0.612959862F);
  CHECK(uniform_float(0x77f5493b) == 0.468586504F);
  CHECK(uniform_float(0x12bf50ad) == 0.0732317343F);
  CHECK(uniform_float(0x5742b3d7) == 0.340861559F);
}

TEST_CASE("exactly 128 words give a float uniform of one") {
  CHECK(uniform_float(0xffffffffU - 127) == 1.0F);
  CHECK(uniform_float(0xffffffffU - 128) < 1.0F);
}

TEST_CASE("an fma gives a float uniform the same bits") {
  for (std::uint32_t i = 0; i < 100000; ++i) {
    const std::uint32_t word = i * 0x9E3779B9U;
    if (uniform_float(word) != std::fma(static_cast<float>(word), 0x1p-32F, 0x1p-33F)) {
      FAIL("word " << word);
    }
  }
}

TEST_CASE("double uniforms are exact midpoints inside of (0, 1)") {
  CHECK(uniform_double(0) == 0x1p-33);
  CHECK(uniform_double(0xffffffff) == 1 - 0x1p-33);
  CHECK(uniform_double(0x80000000) == 0.5 + 0x1p-33);
}

TEST_CASE("the keep threshold counts the words whose uniform is at most 1 - p") {
  CHECK(keep_threshold(0.0) == std::uint64_t{1} << 32);
  CHECK(keep_threshold(1.0) == 0);
  CHECK(keep_threshold(0.5) == std::uint64_t{1} << 31);
  for (const double p : {0.1, 0.25, 1.0 / 3, 0.9, 1 - 0x1p-32}) {
    CAPTURE(p);
    const std::uint64_t threshold = keep_threshold(p);
    REQUIRE(threshold >= 1);
    CHECK(uniform_double(static_cast<std::uint32_t>(threshold - 1)) <= 1 - p);
    CHECK(uniform_double(static_cast<std::uint32_t>(threshold)) > 1 - p);
  }
}

TEST_CASE("neighbouring positions, streams and seeds give different words") {
  std::set<std::uint32_t> seen;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    for (std::uint64_t stream = 0; stream < 8; ++stream) {
      for (std::uint64_t i = 0; i < 8; ++i) seen.insert(PhiloxStream{seed, stream}.word(i));
    }
  }
  // A collision among 512 of 2^32 words has probability 3e-5; these known words have none.
  CHECK(seen.size() == 512);
}

}  // namespace
}  // namespace rematch
