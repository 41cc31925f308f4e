#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdint>

#include "engine/random/philox.h"

namespace rematch {
namespace {

TEST_CASE("a block holds the four words at its positions also beyond 2^32 blocks") {
  const PhiloxStream stream{3, 5};
  for (const std::uint64_t index : {std::uint64_t{0}, std::uint64_t{17}, std::uint64_t{1} << 33}) {
    std::array<std::uint32_t, 4> block{};
    stream.block(index, block.data());
    for (std::uint64_t i = 0; i < 4; ++i) CHECK(stream.word(4 * index + i) == block[i]);
  }
  // The high half of the block index takes part.
  CHECK(stream.word(0) != stream.word(std::uint64_t{4} << 32));
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

}  // namespace
}  // namespace rematch
