#include "engine/cuda/offload.h"

#include <cstring>
#include <vector>

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

/// Makes what is queued next on stream() wait for `copy`; if that fails the copy is over
/// nonetheless.
void wait_for(const Context::Copying& copy) noexcept {
  Context& mine = context();
  if (cudaStreamWaitEvent(stream(), copy.done, 0) != cudaSuccess) {
    (void)cudaStreamSynchronize(mine.copies);
  }
  mine.spare_events.push_back(copy.done);
}

/// Queues a copy between the block and pinned memory, after what is queued on either stream.
void begin_copy(const void* block, void* to, const void* from, std::int64_t bytes,
                cudaMemcpyKind kind) {
  if (bytes == 0) return;
  Context& mine = context();
  mine.copying.reserve(mine.copying.size() + 1);
  mine.spare_events.reserve(mine.copying.size() + mine.spare_events.size() + 1);
  if (mine.spare_events.empty()) {
    cudaEvent_t made = nullptr;
    check(cudaEventCreateWithFlags(&made, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    mine.spare_events.push_back(made);
  }
  check(put_in_order(stream(), mine.copies), "cudaStreamWaitEvent before a copy");
  const cudaError_t copied =
      cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), kind, mine.copies);
  const cudaError_t recorded = cudaEventRecord(mine.spare_events.back(), mine.copies);
  if (recorded == cudaSuccess) {
    // From here on it can be waited for, also where the copy was refused: a capture that has spread
    // to the stream of copies must come back from it.
    mine.copying.push_back({block, mine.spare_events.back()});
    mine.spare_events.pop_back();
  } else {
    (void)cudaStreamSynchronize(mine.copies);
  }
  check(copied, "cudaMemcpyAsync of pinned memory");
  check(recorded, "cudaEventRecord after a copy");
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
    (void)cudaMemsetAsync(block, 0xff, static_cast<std::size_t>(bytes), context().copies);
  }

  void copy_in(void* block, const void* host, std::int64_t bytes) override {
    copy(block, host, bytes);
  }
  void copy_out(void* host, const void* block, std::int64_t bytes) override {
    copy(host, block, bytes);
  }
  void copy(void* to, const void* from, std::int64_t bytes) override {
    if (bytes == 0) return;
    check(cudaStreamSynchronize(context().copies), "cudaStreamSynchronize of copies");
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
  static void wait_for_copies() noexcept { (void)cudaStreamSynchronize(context().copies); }

  BlockCache cache_{cache_limit()};
  std::int64_t reserved_ = 0;
};

}  // namespace

std::unique_ptr<MemoryResource> pinned_memory() {
  require_device("pinned_memory");
  return std::make_unique<PinnedMemory>();
}

void begin_copy_out(void* pinned, const void* block, std::int64_t bytes) {
  begin_copy(block, pinned, block, bytes, cudaMemcpyDeviceToHost);
}

void begin_copy_back(void* block, const void* pinned, std::int64_t bytes) {
  begin_copy(block, block, pinned, bytes, cudaMemcpyHostToDevice);
}

void finish_copy(const void* block) noexcept {
  std::erase_if(context().copying, [=](const Context::Copying& copy) {
    if (copy.block != block) return false;
    wait_for(copy);
    return true;
  });
}

void finish_copies() noexcept {
  std::vector<Context::Copying>& copying = context().copying;
  if (copying.empty()) return;
  // The others are before the last on the same stream.
  wait_for(copying.back());
  copying.pop_back();
  for (const Context::Copying& copy : copying) context().spare_events.push_back(copy.done);
  copying.clear();
}

}  // namespace rematch::cuda
