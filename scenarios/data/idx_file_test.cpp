#include "scenarios/data/idx_file.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "scenarios/data/dataset.h"
#include "scenarios/data/testing/folder.h"

namespace rematch::scenarios {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using testing::Bytes;
using testing::Folder;
using testing::gzip;
using testing::idx;

constexpr std::int64_t kMany = 1 << 20;

/// Bytes that do not compress to almost nothing.
Bytes noise(std::size_t count) {
  Bytes bytes(count);
  std::uint32_t state = 1;
  for (std::uint8_t& b : bytes) {
    state = state * 1'664'525U + 1'013'904'223U;
    b = static_cast<std::uint8_t>(state >> 24);
  }
  return bytes;
}

}  // namespace

TEST_CASE("an IDX file is read as it was written, compressed or not") {
  const Folder folder;
  const Bytes values = noise(2 * 3 * 5);
  const Bytes file = idx({2, 3, 5}, values);
  for (const Bytes& written : {file, gzip(file)}) {
    const IdxArray read = read_idx_file(folder.write("a.gz", written), 3, kMany);
    CHECK(read.extents == std::vector<std::int64_t>{2, 3, 5});
    CHECK(read.values == values);
  }
}

TEST_CASE("an IDX file that ends early is refused, wherever it was cut") {
  const Folder folder;
  const Bytes plain = idx({4, 8}, noise(32));
  for (const Bytes& whole : {plain, gzip(plain)}) {
    for (std::size_t kept = 0; kept < whole.size(); ++kept) {
      const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(kept));
      INFO(kept << " of " << whole.size() << " bytes");
      CHECK_THROWS_AS(read_idx_file(folder.write("cut.gz", cut), 2, kMany), DataError);
    }
  }
}

TEST_CASE("a compressed IDX file with a damaged byte of data is refused") {
  const Folder folder;
  Bytes file = gzip(idx({64, 64}, noise(64 * 64)));
  file[file.size() / 2] ^= 0x10;
  CHECK_THROWS_AS(read_idx_file(folder.write("damaged.gz", file), 2, kMany), DataError);
}

TEST_CASE("a file that goes on after the last value is refused") {
  const Folder folder;
  Bytes file = idx({3}, {1, 2, 3, 4});
  CHECK_THROWS_MATCHES(read_idx_file(folder.write("long.gz", gzip(file)), 1, kMany), DataError,
                       MessageMatches(ContainsSubstring("expected the file's end, got more")));
}

TEST_CASE("a foreign file is refused with what was expected and what came") {
  const Folder folder;
  CHECK_THROWS_MATCHES(
      read_idx_file(folder.write("text", {'h', 'e', 'l', 'l', 'o'}), 3, kMany), DataError,
      MessageMatches(ContainsSubstring("begins 00 00 08 03") && ContainsSubstring("68 65 6c 6c")));
  CHECK_THROWS_MATCHES(read_idx_file(folder.write("labels", idx({1}, {7})), 3, kMany), DataError,
                       MessageMatches(ContainsSubstring("rank 3")));
  CHECK_THROWS_MATCHES(read_idx_file(folder.path() / "none.gz", 1, kMany), DataError,
                       MessageMatches(ContainsSubstring("No such file")));
  CHECK_THROWS_AS(read_idx_file(folder.path(), 1, kMany), DataError);
}

TEST_CASE("a header that asks for more than is allowed is refused before memory is taken") {
  const Folder folder;
  const Bytes huge = idx({0xffffffff, 0xffffffff, 0xffffffff}, {});
  CHECK_THROWS_MATCHES(read_idx_file(folder.write("huge", huge), 3, kMany), DataError,
                       MessageMatches(ContainsSubstring("at most 1048576 values")));
  CHECK_THROWS_AS(read_idx_file(folder.write("one", idx({1025, 1024}, {})), 2, kMany), DataError);
}

}  // namespace rematch::scenarios
