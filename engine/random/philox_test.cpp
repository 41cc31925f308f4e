#include "engine/random/philox.h"

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>

namespace rematch {
namespace {

using Block = std::array<std::uint32_t, 4>;

static_assert(philox4x32_10({0, 0, 0, 0}, {0, 0}) ==
              Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});

TEST_CASE("philox4x32-10 gives the known answers of Random123") {
  CHECK(philox4x32_10({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}) ==
        Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

Block words(PhiloxStream stream, std::uint64_t position) {
  return {stream.word(position), stream.word(position + 1), stream.word(position + 2),
          stream.word(position + 3)};
}

TEST_CASE("a stream's words are those of cuRAND for the same seed, subsequence and offset") {
  CHECK(words({0, 0}, 4) == Block{0xf8e4cca4, 0x5cb200db, 0xb1a574eb, 0x097eff67});
  CHECK(words({0, 0}, 5) == Block{0x5cb200db, 0xb1a574eb, 0x097eff67, 0x04faa329});
  CHECK(words({0, 1}, 0) == Block{0x844515e1, 0xf08d6eaa, 0x0f19c053, 0x83f875f0});
  CHECK(words({42, 0}, 0) == Block{0x9ceaf053, 0x77f5493b, 0x12bf50ad, 0x5742b3d7});
  CHECK(words({42, 1}, 0) == Block{0x02933769, 0x2051e913, 0x3b68b038, 0xb62c409c});
  CHECK(words({42, 300}, 4) == Block{0x4791f8b2, 0xa2781f1b, 0x215d5dd3, 0xaa2c37ed});
  CHECK(words({0x0123456789abcdef, 0}, 0) == Block{0xb850222e, 0xc58cb04b, 0x14a7a020, 0x7a84fff9});
}

TEST_CASE("uniforms lie in their intervals and match cuRAND's") {
  CHECK(uniform_float(0x9ceaf053) == 0.612959862F);
  CHECK(uniform_float(0x77f5493b) == 0.468586504F);
  CHECK(uniform_float(0x12bf50ad) == 0.0732317343F);
  CHECK(uniform_float(0x5742b3d7) == 0.340861559F);
  CHECK(uniform_float(0) == 0x1p-33F);
  CHECK(uniform_float(0xffffffff) == 1.0F);
  CHECK(uniform_double(0) == 0x1p-33);
  CHECK(uniform_double(0xffffffff) == 1.0 - 0x1p-33);
}

TEST_CASE("the keep threshold counts the words whose uniform is at most 1 - p") {
  CHECK(keep_threshold(0.0) == std::uint64_t{1} << 32);
  CHECK(keep_threshold(1.0) == 0);
  CHECK(keep_threshold(0.5) == std::uint64_t{1} << 31);
  for (const double p : {0.1, 0.2, 0.3, 0.75, 0.999}) {
    const auto count = keep_threshold(p);
    CHECK(uniform_double(static_cast<std::uint32_t>(count - 1)) <= 1.0 - p);
    CHECK(uniform_double(static_cast<std::uint32_t>(count)) > 1.0 - p);
  }
}

}  // namespace
}  // namespace rematch
