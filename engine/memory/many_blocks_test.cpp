// Many blocks of many sizes at once.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstdint>
#include <cstring>
#include <vector>

#include "engine/memory/block_cache.h"
#include "engine/memory/resource.h"

namespace rematch {
namespace {

using SizeClass = BlockCache::SizeClass;

/// An address, which is never read.
void* address(std::size_t i) { return reinterpret_cast<void*>(64 * (i + 1)); }

/// Sizes of n different classes, from 64 bytes to terabytes.
std::vector<SizeClass> classes(std::size_t n) {
  std::vector<SizeClass> all;
  for (std::int64_t bytes = 1; all.size() < n; bytes = all.back().bytes + 1) {
    all.push_back(BlockCache::size_class(bytes));
  }
  return all;
}

}  // namespace

TEST_CASE("a cache gives back every one of many blocks, the newest of a class first") {
  const std::size_t n = GENERATE(2U, 5U, 17U, 65U, 257U, 65537U);
  const std::size_t kinds = GENERATE(1U, 2U, 17U, 65U, 128U);
  CAPTURE(n, kinds);
  const std::vector<SizeClass> all = classes(kinds);
  BlockCache cache(std::int64_t{1} << 62);
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < n; ++i) {
    if (!cache.keep(all[i % kinds], address(i))) FAIL(i);
    bytes += all[i % kinds].bytes;
  }
  CHECK(cache.bytes() == bytes);
  for (std::size_t i = n; i-- > 0;) {
    if (cache.take(all[i % kinds]) != address(i)) FAIL(i);
    bytes -= all[i % kinds].bytes;
    if (cache.bytes() != bytes) FAIL(i);
  }
  for (const SizeClass& c : all) CHECK(cache.take(c) == nullptr);
}

TEST_CASE("a cache of many blocks is drained of each of them, once") {
  const std::size_t n = GENERATE(2U, 5U, 17U, 65U, 257U, 65537U);
  const std::vector<SizeClass> all = classes(65);
  BlockCache cache(std::int64_t{1} << 62);
  for (std::size_t i = 0; i < n; ++i) CHECK(cache.keep(all[i % all.size()], address(i)));
  std::vector<int> drained(n, 0);
  cache.drain([&](void* block) { ++drained[reinterpret_cast<std::uintptr_t>(block) / 64 - 1]; });
  CHECK((drained == std::vector<int>(n, 1)));
  CHECK(cache.bytes() == 0);
  for (const SizeClass& c : all) CHECK(cache.take(c) == nullptr);
  cache.drain([](void* /*block*/) { FAIL("a block is handed out twice"); });
}

TEST_CASE("blocks of a host that are in use together are apart, whatever their sizes") {
  const std::size_t n = GENERATE(2U, 17U, 257U, 4096U);
  const auto memory = host_memory();
  struct Block {
    unsigned char* data;
    std::int64_t bytes;
  };
  std::vector<Block> blocks;
  // Again and again, so that blocks of other sizes are used again.
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < n; ++i) {
      const auto bytes = static_cast<std::int64_t>(1 + (i * 131 + 7 * round) % 3001);
      auto* data = static_cast<unsigned char*>(memory->allocate(bytes));
      if (reinterpret_cast<std::uintptr_t>(data) % 64 != 0) FAIL(i);
      std::memset(data, static_cast<int>(i % 251), static_cast<std::size_t>(bytes));
      blocks.push_back({data, bytes});
    }
    std::int64_t in_use = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const auto [data, bytes] = blocks[i];
      in_use += bytes;
      if (!std::all_of(data, data + bytes, [&](unsigned char c) { return c == i % 251; })) FAIL(i);
    }
    CHECK(memory->reserved() >= in_use);
    for (std::size_t i = 0; i < n; ++i) {
      const auto& [data, bytes] = blocks[(i * 7 + round) % n];
      memory->release(data, bytes);
    }
    blocks.clear();
  }
  memory->trim();
  CHECK(memory->reserved() == 0);
}

}  // namespace rematch
