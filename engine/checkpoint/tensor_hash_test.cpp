#include "engine/checkpoint/tensor_hash.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <set>
#include <vector>

#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using namespace testing;

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

}  // namespace
}  // namespace rematch
