#include <cstdlib>
#include <cstring>

#include "engine/memory/block_cache.h"
#include "engine/memory/resource.h"

namespace rematch {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr std::int64_t kMaxCachedBytes = 0;
#else
constexpr std::int64_t kMaxCachedBytes = std::int64_t{1} << 30;
#endif

class HostMemory final : public MemoryResource {
 public:
  ~HostMemory() override { HostMemory::trim(); }

  void* allocate(std::int64_t bytes) override {
    const auto c = BlockCache::size_class(bytes);
    void* block = cache_.take(c);
    if (block == nullptr) {
      block = std::aligned_alloc(BlockCache::kAlignment, static_cast<std::size_t>(c.bytes));
      if (block != nullptr) reserved_ += c.bytes;
    }
    return block;
  }

  void release(void* block, std::int64_t bytes) noexcept override {
    const auto c = BlockCache::size_class(bytes);
    if (cache_.keep(c, block)) return;
    std::free(block);
    reserved_ -= c.bytes;
  }

  void poison(void* block, std::int64_t bytes) noexcept override {
    std::memset(block, 0xff, static_cast<std::size_t>(bytes));
  }

  void copy_in(void* block, const void* host, std::int64_t bytes) override {
    copy(block, host, bytes);
  }
  void copy_out(void* host, const void* block, std::int64_t bytes) override {
    copy(host, block, bytes);
  }
  void copy(void* to, const void* from, std::int64_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }

  void trim() noexcept override {
    reserved_ -= cache_.bytes();
    cache_.drain([](void* block) { std::free(block); });
  }

  [[nodiscard]] std::int64_t reserved() const noexcept override { return reserved_; }
  [[nodiscard]] Device device() const noexcept override { return Device::cpu; }
  [[nodiscard]] std::string_view name() const noexcept override { return "the system"; }

 private:
  BlockCache cache_{kMaxCachedBytes};
  std::int64_t reserved_ = 0;
};

}  // namespace

std::string_view to_string(Device device) { return device == Device::cpu ? "cpu" : "cuda"; }

std::unique_ptr<MemoryResource> host_memory() { return std::make_unique<HostMemory>(); }

}  // namespace rematch
