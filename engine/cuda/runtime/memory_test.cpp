#include "engine/cuda/runtime/memory.h"

#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "engine/cuda/testing/device.h"
#include "engine/memory/ledger.h"

namespace rematch::cuda {
namespace {

using namespace testing;

std::vector<unsigned char> bytes_at(const void* block, std::int64_t bytes) {
  std::vector<unsigned char> host(static_cast<std::size_t>(bytes));
  copy_to_host(host.data(), block, bytes);
  return host;
}

/// The events of one sequence of allocations, releases, limits and injected failures.
std::vector<LedgerEvent> play(Ledger& ledger) {
  ledger.record_timeline(true);
  std::vector<std::pair<void*, std::int64_t>> blocks;
  const auto take = [&](std::int64_t bytes, Tag tag) {
    try {
      blocks.emplace_back(ledger.allocate(bytes, tag), bytes);
    } catch (const OutOfMemory&) {
      ledger.set_label(static_cast<std::int32_t>(blocks.size()) + 100);
    }
  };
  take(1, Tag::temporaries);
  take(1000, Tag::temporaries);
  take(0, Tag::temporaries);
  ledger.fail_allocation(2);
  take(300, Tag::temporaries);
  take(400, Tag::temporaries);
  ledger.set_limit(ledger.live() + 10);
  take(11, Tag::temporaries);
  take(10, Tag::temporaries);
  ledger.set_limit(std::nullopt);
  ledger.retag(1000, Tag::temporaries, Tag::saved);
  ledger.retag(1000, Tag::saved, Tag::temporaries);
  take(1 << 20, Tag::temporaries);
  for (const auto& [block, bytes] : blocks) ledger.release(block, bytes, Tag::temporaries);
  return ledger.timeline();
}

DEVICE_TEST_CASE("a ledger of device memory counts, limits and fails as one of host memory") {
  Ledger host;
  Ledger device(device_memory());
  CHECK(host.device() == Device::cpu);
  CHECK(device.device() == Device::cuda);
  const std::vector<LedgerEvent> want = play(host);
  const std::vector<LedgerEvent> got = play(device);
  REQUIRE(got.size() == want.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    CAPTURE(i);
    CHECK(got[i].kind == want[i].kind);
    CHECK(got[i].tag == want[i].tag);
    CHECK(got[i].bytes == want[i].bytes);
    CHECK(got[i].live == want[i].live);
    CHECK(got[i].saved == want[i].saved);
    CHECK(got[i].label == want[i].label);
  }
  CHECK(device.peak() == host.peak());
  CHECK(device.total() == host.total());
  CHECK(device.allocations() == host.allocations());
  CHECK(device.live() == 0);
}

DEVICE_TEST_CASE("blocks of the device are aligned to 256 bytes and do not overlap") {
  Ledger ledger(device_memory());
  std::vector<std::pair<void*, std::int64_t>> blocks;
  for (const std::int64_t bytes : {1, 63, 64, 65, 511, 513, 4097, 100000, 3000000}) {
    void* const block = ledger.allocate(bytes, Tag::temporaries);
    CHECK(reinterpret_cast<std::uintptr_t>(block) % 256 == 0);
    const auto fill = static_cast<int>(blocks.size() + 1);
    check(cudaMemsetAsync(block, fill, static_cast<std::size_t>(bytes), stream()), "memset");
    blocks.emplace_back(block, bytes);
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const auto [block, bytes] = blocks[i];
    const auto fill = static_cast<unsigned char>(i + 1);
    CHECK(bytes_at(block, bytes) == std::vector(static_cast<std::size_t>(bytes), fill));
    ledger.release(block, bytes, Tag::temporaries);
  }
}

DEVICE_TEST_CASE("freed device memory reads as NaN when poisoned, and its values when not") {
  need_kept_blocks();
  for (const bool poison : {true, false}) {
    Ledger ledger(device_memory());
    ledger.set_poison(poison);
    void* const block = ledger.allocate(64, Tag::temporaries);
    check(cudaMemsetAsync(block, 7, 64, stream()), "memset");
    ledger.release(block, 64, Tag::temporaries);
    // The ledger keeps the block, so this reads its memory, as a stale tensor would.
    void* const again = ledger.allocate(64, Tag::temporaries);
    REQUIRE(again == block);
    const unsigned char want = poison ? 0xff : 7;
    CHECK(bytes_at(again, 64) == std::vector<unsigned char>(64, want));
    ledger.release(again, 64, Tag::temporaries);
  }
}

DEVICE_TEST_CASE("poison waits for the work on a block that was queued before its release") {
  need_kept_blocks();
  constexpr std::int64_t kBytes = 64 << 20;
  Ledger ledger(device_memory());
  ledger.set_poison(true);
  void* const a = ledger.allocate(kBytes, Tag::temporaries);
  void* const b = ledger.allocate(kBytes, Tag::temporaries);
  check(cudaMemsetAsync(a, 5, kBytes, stream()), "memset");
  check(cudaMemcpyAsync(b, a, kBytes, cudaMemcpyDeviceToDevice, stream()), "copy");
  ledger.release(a, kBytes, Tag::temporaries);
  CHECK(bytes_at(b, kBytes) == std::vector<unsigned char>(kBytes, 5));
  ledger.release(b, kBytes, Tag::temporaries);
}

DEVICE_TEST_CASE("more memory than the device has is out of memory, and the ledger goes on") {
  Ledger ledger(device_memory());
  void* const before = ledger.allocate(1000, Tag::parameters);
  constexpr std::int64_t kTooMuch = std::int64_t{1} << 46;
  CHECK_THROWS_AS(ledger.allocate(kTooMuch, Tag::temporaries), OutOfMemory);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  CHECK(ledger.live() == 1000);
  void* const after = ledger.allocate(2000, Tag::temporaries);
  check(cudaMemsetAsync(after, 1, 2000, stream()), "memset");
  synchronize();
  ledger.release(after, 2000, Tag::temporaries);
  ledger.release(before, 1000, Tag::parameters);
}

DEVICE_TEST_CASE("reserved bytes are at least the live ones, and stand beside them") {
  Ledger ledger(device_memory());
  void* const block = ledger.allocate(10 << 20, Tag::temporaries);
  CHECK(ledger.reserved() >= ledger.live());
  CHECK(ledger.reserved() == pool_reserved());
  ledger.release(block, 10 << 20, Tag::temporaries);
  CHECK(ledger.live() == 0);
}

DEVICE_TEST_CASE("a second round of the same allocations asks the pool for nothing") {
  need_kept_blocks();
  Ledger ledger(device_memory());
  const auto round = [&] {
    std::vector<void*> blocks;
    for (std::int64_t bytes = 100; bytes < 1 << 22; bytes = bytes * 3 / 2) {
      blocks.push_back(ledger.allocate(bytes, Tag::temporaries));
    }
    std::size_t at = 0;
    for (std::int64_t bytes = 100; bytes < 1 << 22; bytes = bytes * 3 / 2) {
      ledger.release(blocks[at++], bytes, Tag::temporaries);
    }
    return blocks;
  };
  const std::vector<void*> first = round();
  const std::int64_t reserved = ledger.reserved();
  CHECK(round() == first);
  CHECK(ledger.reserved() == reserved);
}

DEVICE_TEST_CASE("a ledger may outlive the thread that made its blocks") {
  auto ledger = std::make_unique<Ledger>(device_memory());
  void* block = nullptr;
  std::thread([&] {
    block = ledger->allocate(5000, Tag::temporaries);
    check(cudaMemsetAsync(block, 3, 5000, stream()), "memset");
    synchronize();
  }).join();
  CHECK(bytes_at(block, 5000) == std::vector<unsigned char>(5000, 3));
  ledger->release(block, 5000, Tag::temporaries);
  ledger.reset();
  synchronize();
}

}  // namespace
}  // namespace rematch::cuda
