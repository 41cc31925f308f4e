#include "engine/cuda/runtime/offload.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "engine/ambient/ambient_scope.h"
#include "engine/cuda/runtime/graph.h"
#include "engine/cuda/testing/device.h"
#include "engine/cuda/testing/gate.h"

namespace rematch::cuda {
namespace {

using namespace testing;

constexpr std::int64_t kLarge = 64 << 20;

}  // namespace

DEVICE_TEST_CASE("pinned blocks are aligned, apart, kept for reuse, and given back", "[offload]") {
  Ledger ledger(pinned_memory());
  CHECK(ledger.device() == Device::cpu);
  CHECK(ledger.reserved() == 0);
  std::vector<std::pair<void*, std::int64_t>> blocks;
  for (const std::int64_t bytes : {1, 63, 64, 65, 511, 513, 4097, 100000, 3000000}) {
    void* const block = ledger.allocate(bytes, Tag::saved);
    CHECK(reinterpret_cast<std::uintptr_t>(block) % 64 == 0);
    std::memset(block, static_cast<int>(blocks.size() + 1), static_cast<std::size_t>(bytes));
    blocks.emplace_back(block, bytes);
  }
  CHECK(ledger.reserved() >= ledger.live());
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const auto [block, bytes] = blocks[i];
    const std::vector<unsigned char> want(static_cast<std::size_t>(bytes),
                                          static_cast<unsigned char>(i + 1));
    CHECK(std::memcmp(block, want.data(), want.size()) == 0);
    ledger.release(block, bytes, Tag::saved);
  }
  if (blocks_are_kept()) {
    void* const again = ledger.allocate(3000000, Tag::saved);
    CHECK(again == blocks.back().first);
    ledger.release(again, 3000000, Tag::saved);
  }
  ledger.trim();
  CHECK(ledger.reserved() == 0);
}

DEVICE_TEST_CASE("pinned memory that a captured step poisons changes when the graph runs",
                 "[offload]") {
  const auto memory = pinned_memory();
  constexpr std::int64_t kBytes = 1024;
  void* const block = memory->allocate(kBytes);
  const auto holds = [&](int byte) {
    check(cudaDeviceSynchronize(), "synchronize");
    const auto* const first = static_cast<const unsigned char*>(block);
    return std::all_of(first, first + kBytes, [=](unsigned char b) { return b == byte; });
  };
  std::memset(block, 1, kBytes);
  Graph graph(ambient().streams, [&] { memory->poison(block, kBytes); });
  CHECK(holds(1));
  graph.run();
  CHECK(holds(0xff));
  memory->release(block, kBytes);
}

DEVICE_TEST_CASE("pinned memory that was freed reads as NaN when poisoned", "[offload]") {
  need_kept_blocks();
  Ledger ledger(pinned_memory());
  ledger.set_poison(true);
  void* const block = ledger.allocate(64, Tag::saved);
  std::memset(block, 7, 64);
  ledger.release(block, 64, Tag::saved);
  REQUIRE(ledger.allocate(64, Tag::saved) == block);
  std::vector<unsigned char> found(64);
  ledger.memory().copy_out(found.data(), block, 64);
  CHECK(found == std::vector<unsigned char>(64, 0xff));
  ledger.release(block, 64, Tag::saved);
}

DEVICE_TEST_CASE(
    "a copy out runs beside later work, after earlier work, and is waited for at its end",
    "[offload]") {
  Ledger device(device_memory());
  Ledger host(pinned_memory());
  void* const block = device.allocate(kLarge, Tag::temporaries);
  void* const pinned = host.allocate(kLarge, Tag::saved);
  check(cudaMemsetAsync(block, 5, kLarge, stream()), "memset");
  synchronize();
  {
    Gate before;
    check(cudaMemsetAsync(block, 7, kLarge, stream()), "memset");
    begin_copy_out(pinned, block, kLarge);
    CHECK(cudaStreamQuery(context().copies) == cudaErrorNotReady);
    (void)cudaGetLastError();
    before.open();
    finish_copy(block);
  }
  synchronize();
  CHECK(static_cast<const unsigned char*>(pinned)[kLarge - 1] == 7);
  begin_copy_out(pinned, block, kLarge);
  {
    Gate later;
    // Were it not beside, this would wait for the gate.
    CHECK(cudaStreamSynchronize(context().copies) == cudaSuccess);
    finish_copy(block);
    check(cudaMemsetAsync(block, 6, kLarge, stream()), "memset");
  }
  synchronize();
  CHECK(static_cast<const unsigned char*>(pinned)[kLarge - 1] == 7);
  host.release(pinned, kLarge, Tag::saved);
  device.release(block, kLarge, Tag::temporaries);
}

DEVICE_TEST_CASE("what was copied out comes back though block after block is used again",
                 "[offload]") {
  Ledger device(device_memory());
  Ledger host(pinned_memory());
  host.set_poison(true);
  device.set_poison(true);
  std::vector<void*> back;
  for (int round = 1; round <= 6; ++round) {
    void* const block = device.allocate(kLarge, Tag::temporaries);
    void* const pinned = host.allocate(kLarge, Tag::saved);
    check(cudaMemsetAsync(block, round, kLarge, stream()), "memset");
    begin_copy_out(pinned, block, kLarge);
    finish_copy(block);
    // Poisoned at once, and used by the next round or right here.
    device.release(block, kLarge, Tag::temporaries);
    void* const got = device.allocate(kLarge, Tag::temporaries);
    begin_copy_back(got, pinned, kLarge);
    finish_copy(got);
    host.release(pinned, kLarge, Tag::saved);
    back.push_back(got);
  }
  for (std::size_t i = 0; i < back.size(); ++i) {
    std::vector<unsigned char> found(kLarge);
    copy_to_host(found.data(), back[i], kLarge);
    CHECK(found == std::vector<unsigned char>(kLarge, static_cast<unsigned char>(i + 1)));
    device.release(back[i], kLarge, Tag::temporaries);
  }
}

DEVICE_TEST_CASE("several copies out are under way at a time, and each is waited for alone",
                 "[offload]") {
  Ledger device(device_memory());
  Ledger host(pinned_memory());
  std::vector<std::pair<void*, void*>> copies;
  for (int i = 0; i < 3; ++i) {
    void* const block = device.allocate(4096, Tag::temporaries);
    void* const pinned = host.allocate(4096, Tag::saved);
    check(cudaMemsetAsync(block, i + 1, 4096, stream()), "memset");
    begin_copy_out(pinned, block, 4096);
    copies.emplace_back(block, pinned);
  }
  CHECK(context().copying.size() == 3);
  finish_copy(copies[0].first);
  CHECK(context().copying.size() == 2);
  // Waiting for a copy that is not under way does nothing.
  finish_copy(copies[0].first);
  device.memory().before_write(copies[2].first);
  CHECK(context().copying.size() == 1);
  finish_copies();
  CHECK(context().copying.empty());
  synchronize();
  for (std::size_t i = 0; i < copies.size(); ++i) {
    CHECK(static_cast<const unsigned char*>(copies[i].second)[4095] == i + 1);
    host.release(copies[i].second, 4096, Tag::saved);
    device.release(copies[i].first, 4096, Tag::temporaries);
  }
}

DEVICE_TEST_CASE("a copy back runs beside later work until it is finished", "[offload]") {
  Ledger device(device_memory());
  Ledger host(pinned_memory());
  void* const block = device.allocate(4096, Tag::temporaries);
  void* const pinned = host.allocate(4096, Tag::saved);
  std::memset(pinned, 9, 4096);
  // Work queued before would overwrite it.
  check(cudaMemsetAsync(block, 1, 4096, stream()), "memset");
  begin_copy_back(block, pinned, 4096);
  {
    Gate later;
    // Were it not beside, this would wait for the gate.
    CHECK(cudaStreamSynchronize(context().copies) == cudaSuccess);
  }
  finish_copy(block);
  std::vector<unsigned char> found(4096);
  copy_to_host(found.data(), block, 4096);
  CHECK(found == std::vector<unsigned char>(4096, 9));
  host.release(pinned, 4096, Tag::saved);
  device.release(block, 4096, Tag::temporaries);
}

DEVICE_TEST_CASE("a capture may end while a copy out is under way", "[offload]") {
  constexpr std::int64_t kBytes = 4096;
  const AmbientScope scope(std::make_shared<Ledger>(device_memory()), 5);
  Ledger host(pinned_memory());
  void* const block = ambient().ledger->allocate(kBytes, Tag::temporaries);
  void* const pinned = host.allocate(kBytes, Tag::saved);
  check(cudaMemsetAsync(block, 3, kBytes, stream()), "memset");
  Graph graph(ambient().streams, [&] { begin_copy_out(pinned, block, kBytes); });
  graph.run();
  synchronize();
  CHECK(static_cast<const unsigned char*>(pinned)[kBytes - 1] == 3);
  host.release(pinned, kBytes, Tag::saved);
  ambient().ledger->release(block, kBytes, Tag::temporaries);
}

}  // namespace rematch::cuda
