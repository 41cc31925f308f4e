#include "engine/checkpoint/tensor_hash.h"

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <set>
#include <vector>

#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using testing::LedgerScope;
using testing::tensor;

std::vector<std::byte> counting(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + 1);
  return bytes;
}

TEST_CASE("one changed bit, another number of bytes or another seed is another hash") {
  for (const std::size_t size : {0, 1, 7, 8, 9, 31, 32, 33, 63, 64, 65, 100}) {
    CAPTURE(size);
    std::vector<std::byte> bytes = counting(size);
    const std::uint64_t hash = hash_bytes(bytes);
    CHECK(hash == hash_bytes(bytes, 0));
    CHECK(std::set{hash, hash_bytes(bytes, 1), hash_bytes(bytes, 2)}.size() == 3);
    for (std::size_t i = 0; i < size; ++i) {
      for (int bit = 0; bit < 8; ++bit) {
        bytes[i] ^= static_cast<std::byte>(1 << bit);
        if (hash_bytes(bytes) == hash) FAIL("bit " << bit << " of byte " << i << " is not in it");
        bytes[i] ^= static_cast<std::byte>(1 << bit);
      }
    }
  }
  std::set<std::uint64_t> zeros;
  for (std::size_t size = 0; size < 70; ++size) {
    zeros.insert(hash_bytes(std::vector<std::byte>(size)));
  }
  CHECK(zeros.size() == 70);
}

TEST_CASE("no two strings of up to two bytes have one hash") {
  std::set<std::uint64_t> seen{hash_bytes({})};
  std::size_t strings = 1;
  for (int first = 0; first < 256; ++first) {
    const std::array one{static_cast<std::byte>(first)};
    seen.insert(hash_bytes(one));
    for (int second = 0; second < 256; ++second) {
      const std::array two{one[0], static_cast<std::byte>(second)};
      seen.insert(hash_bytes(two));
    }
    strings += 1 + 256;
  }
  CHECK(seen.size() == strings);
}

TEST_CASE("no change of one bit is taken back by that of another, whatever the bytes are") {
  std::vector<std::byte> bytes = counting(96);
  const auto flip = [&bytes](std::size_t bit) {
    bytes[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
  };
  const std::uint64_t hash = hash_bytes(bytes);
  for (std::size_t first = 0; first < 8 * bytes.size(); ++first) {
    flip(first);
    for (std::size_t second = first + 1; second < 8 * bytes.size(); ++second) {
      flip(second);
      if (hash_bytes(bytes) == hash) FAIL("bits " << first << " and " << second);
      flip(second);
    }
    flip(first);
  }
}

TEST_CASE("bytes that change places change the hash, across words and lanes") {
  for (const std::size_t size : {16, 40, 96}) {
    CAPTURE(size);
    std::vector<std::byte> bytes = counting(size);
    const std::uint64_t hash = hash_bytes(bytes);
    for (std::size_t i = 0; i < size; ++i) {
      for (std::size_t j = i + 1; j < size; ++j) {
        std::swap(bytes[i], bytes[j]);
        if (hash_bytes(bytes) == hash) FAIL("bytes " << i << " and " << j);
        std::swap(bytes[i], bytes[j]);
      }
    }
  }
}

TEST_CASE("a hash has one value on every machine") {
  // Hashes are printed, and compared between builds.
  CHECK(hash_bytes({}) == 0xe54f0d3e2d291d0f);
  CHECK(hash_bytes(counting(5)) == 0xc68d870dfac46ffa);
  CHECK(hash_bytes(counting(32), 3) == 0xa898859c176bf0de);
  CHECK(hash_bytes(counting(77)) == 0xcecb68654799a053);
}

TEST_CASE_METHOD(LedgerScope, "the hash of a tensor depends on shape, dtype and bits") {
  const std::set<std::uint64_t> hashes{
      tensor_hash(tensor({1, 2}, {2})),
      tensor_hash(tensor({1, 2}, {1, 2})),
      tensor_hash(tensor({1, 2}, {2, 1})),
      tensor_hash(tensor({2, 1}, {2})),
      tensor_hash(tensor({1, 2}, {2}, DType::float32)),
      tensor_hash(tensor({0, 0}, {2})),
      tensor_hash(tensor({0, -0.0}, {2})),
      tensor_hash(tensor({0, 0, 0, 0}, {4}, DType::float32)),
      tensor_hash(tensor({}, {0, 3})),
      tensor_hash(tensor({}, {3, 0})),
  };
  CHECK(hashes.size() == 10);
  CHECK(tensor_hash(tensor({1, 2}, {2})) == tensor_hash(tensor({1, 2}, {2})));
}

TEST_CASE("a hash of megabytes depends on all of them") {
  std::vector<std::byte> bytes(3 * (1 << 20) + 13);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    // Does not repeat where a block of a power of two does.
    bytes[i] = static_cast<std::byte>(i % 251 + i / 65536);
  }
  const std::uint64_t hash = hash_bytes(bytes);
  // Both ends, and around every boundary of 64 KiB.
  std::vector<std::size_t> places{0, bytes.size() - 1};
  for (std::size_t edge = 65536; edge < bytes.size(); edge += 65536) {
    places.insert(places.end(), {edge - 1, edge, edge + 1});
  }
  for (const std::size_t i : places) {
    bytes[i] ^= std::byte{16};
    if (hash_bytes(bytes) == hash) FAIL("byte " << i << " is not in it");
    bytes[i] ^= std::byte{16};
  }
  for (std::size_t part = 4096; part <= 1 << 20; part *= 2) {
    std::vector<std::byte> moved = bytes;
    std::swap_ranges(moved.data(), moved.data() + part, moved.data() + part);
    if (hash_bytes(moved) == hash) FAIL("parts of " << part << " may change places");
  }
}

}  // namespace
}  // namespace rematch
