#include "engine/cuda/offload.h"

#include <cstring>

#include "engine/cuda/context.h"
#include "engine/cuda/memory.h"
#include "engine/memory/block_cache.h"

namespace rematch::cuda {

namespace {

/// Makes what is queued next on `later` wait for all that is queued on `earlier`.
cudaError_t put_in_order(cudaStream_t earlier, cudaStream_t later) {
  const cudaEvent_t event = context().order;
  const cudaError_t status = cudaEventRecord(event, earlier);
  return status == cudaSuccess ? cudaStreamWaitEvent(later, event, 0) : status;
}

/// Puts the computation after all copies. If that fails the copies are over nonetheless.
cudaError_t join_copies() {
  Context& mine = context();
  mine.copied = nullptr;
  const cudaError_t status = put_in_order(mine.copies, mine.stream);
  if (status != cudaSuccess) (void)wait_for(mine.copies);
  return status;
}

/// Everything that touches a block is on the stream of copies, or waits for it here. So blocks that
/// are kept are in order by themselves.
class PinnedMemory final : public MemoryResource {
 public:
  // The context is made here, so that a failure shows here.
  PinnedMemory() { (void)stream(); }
  ~PinnedMemory() override { PinnedMemory::trim(); }

  void* allocate(std::int64_t bytes) override {
    const auto c = BlockCache::size_class(bytes);
    if (void* kept = cache_.take(c); kept != nullptr) return kept;
    forbid_capture("allocation of pinned memory");
    void* block = from_system(c.bytes);
    if (block != nullptr) return block;
    // What is kept in other size classes may add up to enough.
    trim();
    return from_system(c.bytes);
  }

  void release(void* block, std::int64_t bytes) noexcept override {
    const auto c = BlockCache::size_class(bytes);
    if (cache_.keep(c, block)) return;
    wait_for_copies();
    (void)cudaFreeHost(block);
    reserved_ -= c.bytes;
  }

  void poison(void* block, std::int64_t bytes) noexcept override {
    Context& mine = context();
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    (void)cudaStreamIsCapturing(mine.stream, &status);
    if (status != cudaStreamCaptureStatusNone) {
      // The stream of copies need not be part of the capture yet. Until its end is in order, some
      // block counts as copied.
      finish_copy_out();
      (void)put_in_order(mine.stream, mine.copies);
      mine.copied = block;
    }
    (void)fill_bytes(block, 0xff, bytes, mine.copies);
  }

  void copy_in(void* block, const void* host, std::int64_t bytes) override {
    copy(block, host, bytes);
  }
  void copy_out(void* host, const void* block, std::int64_t bytes) override {
    copy(host, block, bytes);
  }
  void copy(void* to, const void* from, std::int64_t bytes) override {
    if (bytes == 0) return;
    check(wait_for(context().copies), "cudaStreamSynchronize of copies");
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }

  void trim() noexcept override {
    if (cache_.bytes() == 0) return;
    wait_for_copies();
    reserved_ -= cache_.bytes();
    cache_.drain([](void* block) { (void)cudaFreeHost(block); });
  }

  [[nodiscard]] std::int64_t reserved() const noexcept override { return reserved_; }
  [[nodiscard]] Device device() const noexcept override { return Device::cpu; }
  [[nodiscard]] std::string_view name() const noexcept override { return "pinned host memory"; }

 private:
  /// nullptr when the system has no more that can be pinned.
  void* from_system(std::int64_t bytes) {
    void* block = nullptr;
    const cudaError_t status = cudaMallocHost(&block, static_cast<std::size_t>(bytes));
    if (status == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();
      return nullptr;
    }
    check(status, "cudaMallocHost");
    reserved_ += bytes;
    return block;
  }
  static void wait_for_copies() noexcept { (void)wait_for(context().copies); }

  BlockCache cache_{cache_limit()};
  std::int64_t reserved_ = 0;
};

}  // namespace

std::unique_ptr<MemoryResource> pinned_memory() {
  require_device("pinned_memory");
  return std::make_unique<PinnedMemory>();
}

void begin_copy_out(void* pinned, const void* block, std::int64_t bytes) {
  Context& mine = context();
  finish_copy_out();
  if (bytes == 0) return;
  check(put_in_order(mine.stream, mine.copies), "cudaStreamWaitEvent before a copy to the host");
  mine.copied = block;
  check(copy_bytes(pinned, block, bytes, cudaMemcpyDeviceToHost, mine.copies),
        "cudaMemcpyAsync to pinned memory");
}

void finish_copy_out() noexcept {
  if (context().copied != nullptr) (void)join_copies();
}

void copy_back(void* block, const void* pinned, std::int64_t bytes) {
  Context& mine = context();
  if (bytes == 0) return;
  check(put_in_order(mine.stream, mine.copies), "cudaStreamWaitEvent before a copy to the device");
  const cudaError_t copied = copy_bytes(block, pinned, bytes, cudaMemcpyHostToDevice, mine.copies);
  const cudaError_t joined = join_copies();
  check(copied, "cudaMemcpyAsync from pinned memory");
  check(joined, "cudaStreamWaitEvent after a copy to the device");
}

}  // namespace rematch::cuda
