#include "engine/memory/resource.h"

#include <malloc.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "engine/memory/block_cache.h"
#include "engine/memory/ledger.h"

namespace rematch {
namespace {

/// Writes down what it is asked for, and has `room` bytes.
class Recorder final : public MemoryResource {
 public:
  Recorder(std::vector<std::string>& calls, std::int64_t room) : calls_(calls), room_(room) {}

  void* allocate(std::int64_t bytes) override {
    calls_.push_back("allocate " + std::to_string(bytes));
    if (bytes > room_) return nullptr;
    room_ -= bytes;
    return std::malloc(static_cast<std::size_t>(bytes));
  }
  void release(void* block, std::int64_t bytes) noexcept override {
    calls_.push_back("release " + std::to_string(bytes));
    room_ += bytes;
    std::free(block);
  }
  void poison(void* /*block*/, std::int64_t bytes) noexcept override {
    calls_.push_back("poison " + std::to_string(bytes));
  }
  void copy_in(void* /*block*/, const void* /*host*/, std::int64_t /*bytes*/) override {}
  void copy_out(void* /*host*/, const void* /*block*/, std::int64_t /*bytes*/) override {}
  void copy(void* /*to*/, const void* /*from*/, std::int64_t /*bytes*/) override {}
  void trim() noexcept override { calls_.emplace_back("trim"); }
  [[nodiscard]] std::int64_t reserved() const noexcept override { return 4096; }
  [[nodiscard]] Device device() const noexcept override { return Device::cuda; }
  [[nodiscard]] std::string_view name() const noexcept override { return "the recorder"; }

 private:
  std::vector<std::string>& calls_;
  std::int64_t room_;
};

TEST_CASE("a resource that has no more is out of memory by its name, and nothing is counted") {
  std::vector<std::string> calls;
  Ledger ledger(std::make_unique<Recorder>(calls, 1000));
  void* const a = ledger.allocate(600, Tag::parameters);
  std::string text;
  try {
    ledger.allocate(500, Tag::temporaries);
  } catch (const OutOfMemory& error) {
    text = error.what();
  }
  CHECK(text == "[ledger] out of memory: the recorder refused 500 bytes with 600 live");
  CHECK(ledger.live() == 600);
  CHECK(ledger.total() == 600);
  CHECK(ledger.allocations() == 1);
  ledger.release(a, 600, Tag::parameters);
}

TEST_CASE("a host ledger's reserved bytes cover its live ones until they are trimmed") {
  Ledger ledger;
  CHECK(ledger.device() == Device::cpu);
  CHECK(ledger.reserved() == 0);
  void* const a = ledger.allocate(1000, Tag::temporaries);
  CHECK(ledger.reserved() >= 1000);
  ledger.release(a, 1000, Tag::temporaries);
  ledger.trim();
  CHECK(ledger.reserved() == 0);
}

// Under AddressSanitizer no block is kept.
#if !defined(__SANITIZE_ADDRESS__)

TEST_CASE("a host reserves whole size classes, keeps them for reuse, and counts each once") {
  const auto memory = host_memory();
  const std::int64_t one = BlockCache::size_class(1000).bytes;
  const std::int64_t two = BlockCache::size_class(70).bytes;
  void* const a = memory->allocate(1000);
  CHECK(memory->reserved() == one);
  void* const b = memory->allocate(70);
  CHECK(memory->reserved() == one + two);
  memory->release(a, 1000);
  CHECK(memory->reserved() == one + two);
  CHECK(memory->allocate(999) == a);
  CHECK(memory->reserved() == one + two);
  memory->release(a, 999);
  memory->trim();
  CHECK(memory->reserved() == two);
  memory->release(b, 70);
  memory->trim();
  CHECK(memory->reserved() == 0);
  memory->trim();
  CHECK(memory->reserved() == 0);
}

#endif

TEST_CASE("a host keeps at most 1 GiB for reuse and gives the rest back at once") {
  // Nothing writes to these blocks, so the system lends addresses only.
  constexpr std::int64_t kGiB = std::int64_t{1} << 30;
  const auto memory = host_memory();
  void* const large = memory->allocate(kGiB + 1);
  REQUIRE(large != nullptr);
  CHECK(memory->reserved() > kGiB);
  memory->release(large, kGiB + 1);
  CHECK(memory->reserved() == 0);
#if !defined(__SANITIZE_ADDRESS__)
  void* const half = memory->allocate(kGiB / 2);
  void* const other = memory->allocate(kGiB / 2);
  void* const small = memory->allocate(64);
  memory->release(half, kGiB / 2);
  memory->release(other, kGiB / 2);
  CHECK(memory->reserved() == kGiB + 64);
  memory->release(small, 64);
  CHECK(memory->reserved() == kGiB);
#endif
}

// A sanitizer has an allocator of its own, which ends the program when it has no more.
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

TEST_CASE("a host gives every block back to the system, at the latest when it goes") {
  const auto in_use = [] {
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
  };
  constexpr std::int64_t kLarge = std::int64_t{1} << 20;
  auto memory = host_memory();
  const auto before = in_use();
  void* const a = memory->allocate(kLarge);
  void* const b = memory->allocate(kLarge);
  CHECK(in_use() > before + 2 * kLarge);
  memory->release(a, kLarge);
  memory->trim();
  CHECK(in_use() < before + 2 * kLarge);
  memory->release(b, kLarge);
  // More than is ever kept.
  memory->release(memory->allocate(kLarge << 11), kLarge << 11);
  memory.reset();
  CHECK(in_use() < before + kLarge);
}

TEST_CASE("a request that the system refuses reserves nothing") {
  const auto memory = host_memory();
  CHECK(memory->allocate(std::int64_t{1} << 60) == nullptr);
  CHECK(memory->reserved() == 0);
}

#endif

TEST_CASE("a host copies and poisons as many bytes as it was told, and no more") {
  const auto memory = host_memory();
  std::array<unsigned char, 4> host{1, 2, 3, 4};
  auto* const a = static_cast<unsigned char*>(memory->allocate(64));
  auto* const b = static_cast<unsigned char*>(memory->allocate(64));
  a[3] = b[3] = 9;
  memory->copy_in(a, host.data(), 3);
  CHECK(std::vector<int>(a, a + 4) == std::vector<int>{1, 2, 3, 9});
  memory->copy(b, a, 3);
  CHECK(std::vector<int>(b, b + 4) == std::vector<int>{1, 2, 3, 9});
  memory->copy_out(host.data(), b, 1);
  CHECK(host == std::array<unsigned char, 4>{1, 2, 3, 4});
  memory->poison(b, 2);
  CHECK(std::vector<int>(b, b + 4) == std::vector<int>{255, 255, 3, 9});
  memory->copy_out(host.data(), b, 4);
  CHECK(host == std::array<unsigned char, 4>{255, 255, 3, 9});
  memory->copy_in(a, nullptr, 0);
  memory->release(a, 64);
  memory->release(b, 64);
}

TEST_CASE("a ledger counts and limits by itself and asks its resource for blocks alone") {
  std::vector<std::string> calls;
  Ledger ledger(std::make_unique<Recorder>(calls, 1000));
  CHECK(ledger.device() == Device::cuda);
  CHECK(ledger.reserved() == 4096);
  void* const a = ledger.allocate(10, Tag::temporaries);
  CHECK(ledger.allocate(0, Tag::temporaries) == nullptr);
  ledger.release(nullptr, 0, Tag::temporaries);
  ledger.set_limit(15);
  CHECK_THROWS_AS(ledger.allocate(6, Tag::temporaries), OutOfMemory);
  ledger.set_limit(std::nullopt);
  ledger.fail_allocation(1);
  CHECK_THROWS_AS(ledger.allocate(6, Tag::temporaries), OutOfMemory);
  ledger.set_poison(true);
  ledger.release(a, 10, Tag::temporaries);
  ledger.trim();
  CHECK(calls == std::vector<std::string>{"allocate 10", "poison 10", "release 10", "trim"});
  CHECK(ledger.live() == 0);
}

}  // namespace
}  // namespace rematch
