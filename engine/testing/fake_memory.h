#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "engine/memory/resource.h"

namespace rematch::testing {

/// Memory without any: its blocks have addresses of their own and must not be touched, so that they
/// may be as large as a test wants. Notes the bytes of each copy and of each poisoning.
class FakeMemory final : public MemoryResource {
 public:
  struct Notes {
    std::vector<std::int64_t> copied;
    std::vector<std::int64_t> poisoned;
    std::int64_t in_use = 0;
  };
  explicit FakeMemory(Notes& notes) : notes_(notes) {}

  void* allocate(std::int64_t bytes) override {
    notes_.in_use += bytes;
    return reinterpret_cast<void*>(next_ += 64);
  }
  void release(void* /*block*/, std::int64_t bytes) noexcept override { notes_.in_use -= bytes; }
  void poison(void* /*block*/, std::int64_t bytes) noexcept override {
    notes_.poisoned.push_back(bytes);
  }
  void copy_in(void* /*block*/, const void* /*host*/, std::int64_t bytes) override {
    notes_.copied.push_back(bytes);
  }
  void copy_out(void* /*host*/, const void* /*block*/, std::int64_t bytes) override {
    notes_.copied.push_back(bytes);
  }
  void copy(void* /*to*/, const void* /*from*/, std::int64_t bytes) override {
    notes_.copied.push_back(bytes);
  }
  void trim() noexcept override {}
  [[nodiscard]] std::int64_t reserved() const noexcept override { return notes_.in_use; }
  [[nodiscard]] Device device() const noexcept override { return Device::cpu; }
  [[nodiscard]] std::string_view name() const noexcept override { return "fake memory"; }

 private:
  Notes& notes_;
  std::uintptr_t next_ = 0;
};

}  // namespace rematch::testing
