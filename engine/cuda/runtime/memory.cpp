#include "engine/cuda/runtime/memory.h"

#include <cstdlib>
#include <limits>
#include <utility>
#include <vector>

#include "engine/cuda/runtime/context.h"
#include "engine/cuda/runtime/offload.h"
#include "engine/cuda/runtime/readback.h"
#include "engine/memory/block_cache.h"

namespace rematch::cuda {

namespace {

// Blocks are kept by size class here, though the pool keeps memory as well: a graph that frees a
// block it did not allocate cannot be captured, and a block from here costs the host nanoseconds.
//
// With late poison, released blocks wait in freed_ with their content, and are filled and kept for
// reuse many at a time. Small blocks are rather taken from the pool than from there too early.
class DeviceMemory final : public MemoryResource {
 public:
  // The pool is made here, so that a failure shows here.
  DeviceMemory() : pool_(memory_pool()) { (void)stream(); }
  ~DeviceMemory() override { DeviceMemory::trim(); }

  void* allocate(std::int64_t bytes) override {
    const auto c = BlockCache::size_class(bytes);
    if (void* kept = cache_.take(c); kept != nullptr) return kept;
    if (!freed_.empty() && (freed_.size() >= kEnoughFreed || c.bytes > kSmall || capturing())) {
      poison_freed();
      if (void* kept = cache_.take(c); kept != nullptr) return kept;
    }
    forbid_capture("allocation of device memory");
    void* block = from_pool(c.bytes);
    if (block != nullptr) return block;
    // Blocks kept in other size classes may add up to enough, once their last use is over.
    trim();
    check(wait_for(stream()), "cudaStreamSynchronize before a second attempt");
    check(cudaMemPoolTrimTo(pool_, 0), "cudaMemPoolTrimTo");
    return from_pool(c.bytes);
  }

  // Errors below are sticky ones, or those of a process that is ending: the next checked call of
  // the thread, if there is one, reports them.
  void release(void* block, std::int64_t bytes) noexcept override {
    if (!freed_.empty() && freed_.back().data == block) {
      if (freed_.size() == kMoves) poison_freed();
      return;
    }
    reads_.settle(block);
    if (!cache_.keep(BlockCache::size_class(bytes), block)) (void)cudaFreeAsync(block, stream());
  }

  void poison(void* block, std::int64_t bytes) noexcept override {
    if (poisons_late_ && bytes <= kSmall) {
      freed_.push_back({block, bytes});
      return;
    }
    reads_.settle(block);
    context().deferred.fill(block, bytes, kPoison);
  }
  void set_late_poison(bool on) override { poisons_late_ = on && cache_limit() > 0; }

  void copy_in(void* block, const void* host, std::int64_t bytes) override {
    DeviceMemory::before_write(block);
    if (bytes > Deferred::kLargest || capturing()) {
      copy_to_device(block, host, bytes);
    } else {
      context().deferred.upload(block, host, bytes);
    }
  }
  void copy_out(void* host, const void* block, std::int64_t bytes) override {
    copy_to_host(host, block, bytes);
  }
  void copy(void* to, const void* from, std::int64_t bytes) override {
    if (bytes == 0) return;
    DeviceMemory::before_write(to);
    if (bytes <= Deferred::kLargest) return context().deferred.copy(to, from, bytes);
    check(copy_bytes(to, from, bytes, cudaMemcpyDeviceToDevice, stream()),
          "cudaMemcpyAsync on the device");
  }

  void before_write(const void* block) override {
    if (block != nullptr) finish_copy(block);
    reads_.settle(block);
  }

  void read(const void* block, std::int64_t bytes, Reader reader) override {
    // A capture cannot be waited for, and must say so.
    const bool captured = context().draw_advances != nullptr;
    if (bytes > 0 && !captured && reads_.add(block, bytes, reader)) return;
    MemoryResource::read(block, bytes, std::move(reader));
  }
  void finish_reads() override { reads_.finish(); }
  void drop_reads() noexcept override { reads_.drop(); }

  void trim() noexcept override {
    poison_freed();
    cache_.drain([](void* block) { (void)cudaFreeAsync(block, stream()); });
  }

  [[nodiscard]] std::int64_t reserved() const noexcept override {
    std::uint64_t bytes = 0;
    (void)cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrReservedMemCurrent, &bytes);
    return static_cast<std::int64_t>(bytes);
  }
  [[nodiscard]] Device device() const noexcept override { return Device::cuda; }
  [[nodiscard]] std::string_view name() const noexcept override { return "the device"; }

 private:
  struct Freed {
    void* data;
    std::int64_t bytes;
  };
  static constexpr std::uint64_t kPoison = ~std::uint64_t{0};
  static constexpr std::size_t kEnoughFreed = kMoves / 2;
  static constexpr std::int64_t kSmall = std::int64_t{1} << 16;

  void poison_freed() noexcept {
    if (freed_.empty()) return;
    reads_.settle();
    for (const Freed& block : freed_) {
      context().deferred.fill(block.data, block.bytes, kPoison);
      // Late poison is for those who keep all.
      (void)cache_.keep(BlockCache::size_class(block.bytes), block.data);
    }
    freed_.clear();
  }

  /// nullptr when the device has no more.
  void* from_pool(std::int64_t bytes) {
    void* block = nullptr;
    // Deferred writes can go on waiting: they are about other blocks.
    const cudaError_t status =
        cudaMallocFromPoolAsync(&block, static_cast<std::size_t>(bytes), pool_, context().stream);
    if (status == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();
      return nullptr;
    }
    check(status, "cudaMallocFromPoolAsync");
    return block;
  }

  cudaMemPool_t pool_;
  BlockCache cache_{cache_limit()};
  std::vector<Freed> freed_;
  bool poisons_late_ = false;
  Readback reads_;
};

}  // namespace

std::int64_t cache_limit() {
  const char* const off = std::getenv("REMATCH_CUDA_KEEP_NO_BLOCKS");
  return off == nullptr ? std::numeric_limits<std::int64_t>::max() : 0;
}

cudaMemPool_t memory_pool() {
  static const cudaMemPool_t pool = [] {
    require_device("device_memory");
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.handleTypes = cudaMemHandleTypeNone;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id = 0;
    cudaMemPool_t made = nullptr;
    check(cudaMemPoolCreate(&made, &properties), "cudaMemPoolCreate");
    std::uint64_t keep_all = std::numeric_limits<std::uint64_t>::max();
    check(cudaMemPoolSetAttribute(made, cudaMemPoolAttrReleaseThreshold, &keep_all),
          "cudaMemPoolSetAttribute");
    return made;
  }();
  return pool;
}

std::int64_t pool_reserved() {
  std::uint64_t bytes = 0;
  check(cudaMemPoolGetAttribute(memory_pool(), cudaMemPoolAttrReservedMemCurrent, &bytes),
        "cudaMemPoolGetAttribute");
  return static_cast<std::int64_t>(bytes);
}

std::unique_ptr<MemoryResource> device_memory() { return std::make_unique<DeviceMemory>(); }

}  // namespace rematch::cuda
