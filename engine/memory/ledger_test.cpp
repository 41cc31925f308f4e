#include "engine/memory/ledger.h"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace rematch {
namespace {

using Kind = LedgerEvent::Kind;

TEST_CASE("a ledger counts the bytes that were asked for, never rounded") {
  Ledger ledger;
  void* a = ledger.allocate(1, Tag::temporaries);
  void* b = ledger.allocate(1000, Tag::parameters);
  CHECK(ledger.live() == 1001);
  CHECK(ledger.peak() == 1001);
  CHECK(ledger.total() == 1001);
  CHECK(ledger.allocations() == 2);
  ledger.release(a, 1, Tag::temporaries);
  CHECK(ledger.live() == 1000);
  ledger.release(b, 1000, Tag::parameters);
  CHECK(ledger.live() == 0);
  CHECK(ledger.peak() == 1001);
  CHECK(ledger.total() == 1001);
}

TEST_CASE("every live byte carries exactly one tag") {
  Ledger ledger;
  void* a = ledger.allocate(64, Tag::parameters);
  void* b = ledger.allocate(32, Tag::temporaries);
  ledger.retag(32, Tag::temporaries, Tag::saved);
  CHECK(ledger.live(Tag::parameters) == 64);
  CHECK(ledger.live(Tag::temporaries) == 0);
  CHECK(ledger.live(Tag::saved) == 32);
  CHECK(ledger.live() == 96);
  ledger.release(b, 32, Tag::saved);
  CHECK(ledger.live(Tag::saved) == 0);
  ledger.release(a, 64, Tag::parameters);
  CHECK(ledger.live(Tag::parameters) == 0);
}

TEST_CASE("a timeline tells each event with what is live after it") {
  Ledger ledger;
  void* before = ledger.allocate(8, Tag::state);
  ledger.record_timeline(true);
  ledger.set_label(7);
  void* a = ledger.allocate(100, Tag::temporaries);
  ledger.retag(100, Tag::temporaries, Tag::saved);
  ledger.set_label(8);
  ledger.release(a, 100, Tag::saved);
  const std::vector<LedgerEvent>& events = ledger.timeline();
  REQUIRE(events.size() == 3);
  const auto check = [&](std::size_t i, Kind kind, Tag tag, std::int64_t live, std::int64_t saved,
                         std::int32_t label) {
    CAPTURE(i);
    CHECK(events[i].kind == kind);
    CHECK(events[i].tag == tag);
    CHECK(events[i].bytes == 100);
    CHECK(events[i].live == live);
    CHECK(events[i].saved == saved);
    CHECK(events[i].label == label);
  };
  check(0, Kind::allocate, Tag::temporaries, 108, 0, 7);
  check(1, Kind::retag, Tag::saved, 108, 100, 7);
  check(2, Kind::release, Tag::saved, 8, 0, 8);
  CHECK(events[0].block == a);
  CHECK(events[1].block == nullptr);
  CHECK(events[2].block == a);
  ledger.clear_timeline();
  ledger.record_timeline(false);
  ledger.release(before, 8, Tag::state);
  CHECK(ledger.timeline().empty());
}

TEST_CASE("a new ledger counts from zero, keeps no timeline, and labels nothing") {
  Ledger ledger;
  CHECK(ledger.live() == 0);
  CHECK(ledger.peak() == 0);
  CHECK(ledger.total() == 0);
  CHECK(ledger.allocations() == 0);
  void* a = ledger.allocate(8, Tag::state);
  CHECK(ledger.timeline().empty());
  ledger.record_timeline(true);
  ledger.release(a, 8, Tag::state);
  REQUIRE(ledger.timeline().size() == 1);
  CHECK(ledger.timeline()[0].label == 0);
  CHECK(ledger.timeline()[0].live == 0);
}

TEST_CASE("a limit is the number of bytes that may be live, to the byte") {
  Ledger ledger;
  ledger.set_limit(100);
  void* a = ledger.allocate(100, Tag::temporaries);
  CHECK_THROWS_AS(ledger.allocate(1, Tag::temporaries), OutOfMemory);
  CHECK(ledger.live() == 100);
  CHECK(ledger.total() == 100);
  CHECK(ledger.allocations() == 1);
  ledger.release(a, 100, Tag::temporaries);
  CHECK_THROWS_AS(ledger.allocate(101, Tag::temporaries), OutOfMemory);
  ledger.set_limit(std::nullopt);
  void* b = ledger.allocate(101, Tag::temporaries);
  ledger.release(b, 101, Tag::temporaries);
}

TEST_CASE("an error past the limit says what was asked, what is live, and the limit") {
  Ledger ledger;
  ledger.set_limit(100);
  void* a = ledger.allocate(60, Tag::temporaries);
  std::string text;
  try {
    ledger.allocate(41, Tag::temporaries);
  } catch (const OutOfMemory& error) {
    text = error.what();
  }
  CHECK(text ==
        "[ledger] out of memory: 41 bytes requested, 60 live, limit 100; raise the limit, shrink "
        "the batch, or checkpoint more segments");
  ledger.release(a, 60, Tag::temporaries);
}

TEST_CASE("an injected failure strikes the k-th allocation from now, once") {
  for (std::int64_t k = 1; k <= 4; ++k) {
    CAPTURE(k);
    Ledger ledger;
    ledger.fail_allocation(k);
    std::vector<void*> blocks;
    for (std::int64_t i = 1; i <= 5; ++i) {
      if (i == k) {
        CHECK_THROWS_AS(ledger.allocate(16, Tag::temporaries), OutOfMemory);
      } else {
        blocks.push_back(ledger.allocate(16, Tag::temporaries));
      }
    }
    CHECK(ledger.live() == 64);
    for (void* block : blocks) ledger.release(block, 16, Tag::temporaries);
  }
}

TEST_CASE("a disarmed failure does not strike") {
  Ledger ledger;
  ledger.fail_allocation(1);
  ledger.fail_allocation(0);
  void* a = ledger.allocate(16, Tag::temporaries);
  CHECK(a != nullptr);
  ledger.release(a, 16, Tag::temporaries);
}

TEST_CASE("blocks are aligned to 64 bytes") {
  Ledger ledger;
  for (const std::int64_t bytes : {1, 63, 64, 65, 511, 513, 4097, 100000}) {
    CAPTURE(bytes);
    void* block = ledger.allocate(bytes, Tag::temporaries);
    CHECK(reinterpret_cast<std::uintptr_t>(block) % 64 == 0);
    std::memset(block, 1, static_cast<std::size_t>(bytes));
    ledger.release(block, bytes, Tag::temporaries);
  }
}

// Under AddressSanitizer blocks go back to the system, and reading one is an error of its own.
#if !defined(__SANITIZE_ADDRESS__)

TEST_CASE("a reused block is as large as its new request, whatever the two sizes") {
  // Every byte is written, and the blocks in use at one time must not overlap.
  Ledger ledger;
  for (std::int64_t first = 1; first < 3000; first += 61) {
    void* old = ledger.allocate(first, Tag::temporaries);
    ledger.release(old, first, Tag::temporaries);
    for (std::int64_t second = 1; second < 3000; second += 97) {
      auto* a = static_cast<unsigned char*>(ledger.allocate(second, Tag::temporaries));
      auto* b = static_cast<unsigned char*>(ledger.allocate(second, Tag::temporaries));
      std::memset(a, 1, static_cast<std::size_t>(second));
      std::memset(b, 2, static_cast<std::size_t>(second));
      const bool apart = a + second <= b || b + second <= a;
      if (!apart) FAIL("overlapping blocks of " << second << " after " << first);
      ledger.release(a, second, Tag::temporaries);
      ledger.release(b, second, Tag::temporaries);
    }
  }
  CHECK(ledger.live() == 0);
}

TEST_CASE("freed memory reads as NaN in both float formats when poisoned") {
  Ledger ledger;
  ledger.set_poison(true);
  auto* block = static_cast<float*>(ledger.allocate(64, Tag::temporaries));
  for (int i = 0; i < 16; ++i) block[i] = 1.0F;
  ledger.release(block, 64, Tag::temporaries);
  // The ledger keeps the block, so this reads its memory, as a stale tensor would.
  void* again = ledger.allocate(64, Tag::temporaries);
  REQUIRE(again == block);
  double wide = 0;
  for (int i = 0; i < 16; ++i) CHECK(std::isnan(block[i]));
  std::memcpy(&wide, block, sizeof wide);
  CHECK(std::isnan(wide));
  ledger.release(again, 64, Tag::temporaries);
}

TEST_CASE("freed memory keeps its values when not poisoned") {
  Ledger ledger;
  auto* block = static_cast<float*>(ledger.allocate(64, Tag::temporaries));
  block[3] = 5.0F;
  ledger.release(block, 64, Tag::temporaries);
  void* again = ledger.allocate(64, Tag::temporaries);
  REQUIRE(again == block);
  CHECK(block[3] == 5.0F);
  ledger.release(again, 64, Tag::temporaries);
}

#endif

TEST_CASE("an allocation of nothing is counted and has no address") {
  Ledger ledger;
  CHECK(ledger.allocate(0, Tag::temporaries) == nullptr);
  CHECK(ledger.allocations() == 1);
  CHECK(ledger.live() == 0);
  ledger.release(nullptr, 0, Tag::temporaries);
}

}  // namespace
}  // namespace rematch
