#include "engine/random/draw.h"

#include <catch2/catch_test_macros.hpp>

namespace rematch::math {
namespace {

TEST_CASE("the words of a group are the stream's at the group's positions") {
  const PhiloxStream stream{0x123456789abcdefULL, 0x1500000003ULL};
  constexpr std::uint64_t kOffsets[] = {0, 1, 2, 3, 4, 1021, (std::uint64_t{1} << 34) - 6};
  for (const std::uint64_t offset : kOffsets) {
    for (std::uint64_t group = 0; group < 5; ++group) {
      std::uint32_t words[4] = {};
      group_words(stream, offset, group, words);
      for (std::uint64_t k = 0; k < 4; ++k) {
        CAPTURE(offset, group, k);
        CHECK(words[k] == stream.word(offset + 4 * group + k));
      }
    }
  }
}

}  // namespace
}  // namespace rematch::math
