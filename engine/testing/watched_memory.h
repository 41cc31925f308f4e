#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "engine/memory/resource.h"

namespace rematch::testing {

/// Host memory that calls `on_write` with each block that work is about to write to, and says that
/// it is memory of `device`.
class WatchedMemory final : public MemoryResource {
 public:
  explicit WatchedMemory(std::function<void(const void*)> on_write, Device device = Device::cpu)
      : on_write_(std::move(on_write)), device_(device) {}

  void* allocate(std::int64_t bytes) override { return memory_->allocate(bytes); }
  void release(void* block, std::int64_t bytes) noexcept override {
    memory_->release(block, bytes);
  }
  void poison(void* block, std::int64_t bytes) noexcept override { memory_->poison(block, bytes); }
  void copy_in(void* block, const void* host, std::int64_t bytes) override {
    memory_->copy_in(block, host, bytes);
  }
  void copy_out(void* host, const void* block, std::int64_t bytes) override {
    memory_->copy_out(host, block, bytes);
  }
  void copy(void* to, const void* from, std::int64_t bytes) override {
    memory_->copy(to, from, bytes);
  }
  void before_write(const void* block) override { on_write_(block); }
  void trim() noexcept override { memory_->trim(); }
  [[nodiscard]] std::int64_t reserved() const noexcept override { return memory_->reserved(); }
  [[nodiscard]] Device device() const noexcept override { return device_; }
  [[nodiscard]] std::string_view name() const noexcept override { return "watched memory"; }

 private:
  std::unique_ptr<MemoryResource> memory_ = host_memory();
  std::function<void(const void*)> on_write_;
  Device device_;
};

}  // namespace rematch::testing
