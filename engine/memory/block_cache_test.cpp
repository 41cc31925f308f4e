#include "engine/memory/block_cache.h"

#include <algorithm>
#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <set>
#include <vector>

namespace rematch {
namespace {

using SizeClass = BlockCache::SizeClass;

/// An address that is never read.
void* block(std::size_t number) {
  static std::vector<char> blocks(100);
  return &blocks.at(number);
}

TEST_CASE("the class of a size holds it with at most a quarter of slack, in 64-byte units") {
  std::vector<std::int64_t> sizes;
  for (std::int64_t bytes = 1; bytes < 5000; ++bytes) sizes.push_back(bytes);
  for (int log2 = 13; log2 < 50; ++log2) {
    for (const std::int64_t quarter : {4, 5, 6, 7}) {
      const std::int64_t edge = quarter << (log2 - 2);
      for (const std::int64_t bytes : {edge - 1, edge, edge + 1}) sizes.push_back(bytes);
    }
  }
  for (const std::int64_t bytes : sizes) {
    const SizeClass c = BlockCache::size_class(bytes);
    const bool holds = c.bytes >= bytes && c.bytes % 64 == 0;
    // The smallest classes are 64 bytes apart.
    const bool tight = c.bytes - bytes < 64 || 5 * bytes >= 4 * c.bytes;
    if (!holds || !tight) FAIL(bytes << " are given " << c.bytes);
  }
}

TEST_CASE("blocks are aligned to a power of two that divides every class") {
  STATIC_REQUIRE(std::has_single_bit(static_cast<std::uint64_t>(BlockCache::kAlignment)));
  STATIC_REQUIRE(BlockCache::kAlignment >= 64);
  for (std::int64_t bytes = 1; bytes < 5000; ++bytes) {
    if (BlockCache::size_class(bytes).bytes % BlockCache::kAlignment != 0) FAIL(bytes);
  }
}

TEST_CASE("sizes from one boundary to the next share a class, and four lie in each power of two") {
  std::vector<std::int64_t> boundaries{64, 128, 192, 256};
  for (std::int64_t power = 256; power < (std::int64_t{1} << 40); power *= 2) {
    for (const std::int64_t quarter : {5, 6, 7, 8}) boundaries.push_back(power / 4 * quarter);
  }
  std::set<std::size_t> seen;
  std::int64_t before = 0;
  for (const std::int64_t boundary : boundaries) {
    CAPTURE(boundary);
    const SizeClass c = BlockCache::size_class(boundary);
    REQUIRE(c.bytes == boundary);
    REQUIRE(seen.insert(c.index).second);
    const SizeClass first = BlockCache::size_class(before + 1);
    REQUIRE(first.bytes == boundary);
    REQUIRE(first.index == c.index);
    before = boundary;
  }
  // The indices lie close together: a cache has a list for each up to the highest.
  CHECK(*seen.rbegin() < 2 * seen.size());
}

TEST_CASE("a cache takes classes in any order, and knows of none before it was given one") {
  for (const bool ascending : {false, true}) {
    CAPTURE(ascending);
    BlockCache cache(1 << 20);
    std::vector<SizeClass> classes;
    for (std::int64_t bytes = 64; bytes <= 64 * 8; bytes += 64) {
      classes.push_back(BlockCache::size_class(bytes));
    }
    if (!ascending) std::reverse(classes.begin(), classes.end());
    for (std::size_t i = 0; i < classes.size(); ++i) {
      CHECK(cache.take(classes[i]) == nullptr);
      CHECK(cache.keep(classes[i], block(i)));
    }
    for (std::size_t i = 0; i < classes.size(); ++i) CHECK(cache.take(classes[i]) == block(i));
  }
}

TEST_CASE("a cache gives back each of many blocks, the newest of a class first, or drains all") {
  const bool drains = GENERATE(false, true);
  constexpr std::size_t n = 65537;
  std::vector<char> blocks(n);
  BlockCache cache(std::int64_t{1} << 62);
  // Classes from 64 bytes to terabytes.
  std::vector<SizeClass> classes;
  for (std::int64_t bytes = 1; classes.size() < 128; bytes = classes.back().bytes + 1) {
    classes.push_back(BlockCache::size_class(bytes));
  }
  for (std::size_t i = 0; i < n; ++i) {
    if (!cache.keep(classes[i % classes.size()], &blocks[i])) FAIL(i);
  }
  if (drains) cache.drain([](void* block) { ++*static_cast<char*>(block); });
  for (std::size_t i = n; i-- > 0;) {
    if (cache.take(classes[i % classes.size()]) != (drains ? nullptr : &blocks[i])) FAIL(i);
  }
  CHECK((blocks == std::vector<char>(n, drains ? 1 : 0)));
  CHECK(cache.bytes() == 0);
}

TEST_CASE("a cache keeps blocks up to its limit, to the byte") {
  const SizeClass c = BlockCache::size_class(128);
  BlockCache exact(2 * c.bytes);
  CHECK(exact.keep(c, block(0)));
  CHECK(exact.keep(c, block(1)));
  CHECK_FALSE(exact.keep(c, block(2)));
  CHECK(exact.bytes() == 2 * c.bytes);
  CHECK(exact.take(c) == block(1));
  CHECK(exact.keep(c, block(2)));
  BlockCache smaller(2 * c.bytes - 1);
  CHECK(smaller.keep(c, block(0)));
  CHECK_FALSE(smaller.keep(c, block(1)));
  BlockCache none(0);
  CHECK_FALSE(none.keep(BlockCache::size_class(1), block(0)));
  CHECK(none.bytes() == 0);
}

}  // namespace
}  // namespace rematch
