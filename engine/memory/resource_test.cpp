#include "engine/memory/resource.h"

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

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

}  // namespace
}  // namespace rematch
