#include "engine/cuda/runtime/offload.h"

#include <cstring>
#include <vector>

#include "engine/cuda/runtime/context.h"
#include "engine/cuda/runtime/memory.h"
#include "engine/memory/block_cache.h"

namespace rematch::cuda {

namespace {

/// Makes what is queued next on `later` wait for all that is queued on `earlier`.
cudaError_t put_in_order(cudaStream_t earlier, cudaStream_t later) {
  const cudaEvent_t event = context().order;
  const cudaError_t status = cudaEventRecord(event, earlier);
  return status == cudaSuccess ? cudaStreamWaitEvent(later, event, 0) : status;
}

/// Makes what is queued next on the thread's stream wait for `copy`, and what is deferred with it;
/// if that fails the copy is over nonetheless.
void come_after(const Context::Copying& copy) noexcept {
  Context& mine = context();
  if (cudaStreamWaitEvent(mine.stream, copy.done, 0) != cudaSuccess) {
    (void)wait_for(mine.copies);
  }
  mine.spare_events.push_back(copy.done);
}

/// Queues work(stream of copies), which touches `bytes` of `block`, after what is queued on either
/// stream.
template <typename Work>
cudaError_t queue_beside(const void* block, std::int64_t bytes, const Work& work) {
  Context& mine = context();
  if (bytes == 0) return cudaSuccess;
  if (mine.spare_events.empty()) {
    cudaEvent_t made = nullptr;
    const cudaError_t status = cudaEventCreateWithFlags(&made, cudaEventDisableTiming);
    if (status != cudaSuccess) return status;
    mine.spare_events.push_back(made);
  }
  const cudaError_t ordered = put_in_order(stream(), mine.copies);
  if (ordered != cudaSuccess) return ordered;
  const cudaError_t queued = work(mine.copies);
  const cudaEvent_t done = mine.spare_events.back();
  const cudaError_t recorded = cudaEventRecord(done, mine.copies);
  if (recorded != cudaSuccess) {
    (void)wait_for(mine.copies);
    return recorded;
  }
  // Also where the work was refused: a capture that has spread to the stream of copies must come
  // back from it.
  mine.copying.push_back({block, done});
  mine.spare_events.pop_back();
  return queued;
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
    // Blocks kept in other size classes may add up to enough.
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
    const auto fill = [=](cudaStream_t on) { return fill_bytes(block, 0xff, bytes, on); };
    if (status == cudaStreamCaptureStatusNone) {
      (void)fill(mine.copies);
    } else {
      // The stream of copies need not be part of the capture yet.
      (void)queue_beside(block, bytes, fill);
    }
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
  check(queue_beside(block, bytes,
                     [=](cudaStream_t on) {
                       return copy_bytes(pinned, block, bytes, cudaMemcpyDeviceToHost, on);
                     }),
        "copy to pinned memory");
}

void begin_copy_back(void* block, const void* pinned, std::int64_t bytes) {
  check(queue_beside(block, bytes,
                     [=](cudaStream_t on) {
                       return copy_bytes(block, pinned, bytes, cudaMemcpyHostToDevice, on);
                     }),
        "copy from pinned memory");
}

void finish_copy(const void* block) noexcept {
  std::erase_if(context().copying, [=](const Context::Copying& copy) {
    if (copy.block != block) return false;
    come_after(copy);
    return true;
  });
}

void finish_copies() noexcept {
  std::vector<Context::Copying>& copying = context().copying;
  if (copying.empty()) return;
  // The others are before the last on the same stream.
  come_after(copying.back());
  copying.pop_back();
  for (const Context::Copying& copy : copying) context().spare_events.push_back(copy.done);
  copying.clear();
}

}  // namespace rematch::cuda
