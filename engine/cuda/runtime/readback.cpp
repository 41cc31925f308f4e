#include "engine/cuda/runtime/readback.h"

#include <algorithm>
#include <utility>

#include "engine/cuda/runtime/context.h"
#include "engine/cuda/runtime/memory.h"

namespace rematch::cuda {

namespace {

constexpr std::int64_t kReadAlignment = 64;
constexpr std::int64_t kLeast = std::int64_t{1} << 18;
/// A larger copy costs more than a wait, and pinned memory is scarce.
constexpr std::int64_t kMost = std::int64_t{1} << 26;

}  // namespace

Readback::~Readback() { give_back(); }

void Readback::give_back() noexcept {
  if (aside_ != nullptr) (void)cudaFreeAsync(aside_, stream());
  if (host_ != nullptr) (void)cudaFreeHost(host_);
  aside_ = nullptr;
  host_ = nullptr;
  capacity_ = 0;
}

bool Readback::make_room(std::int64_t bytes) {
  if (bytes <= capacity_ - used_) return true;
  if (bytes > kMost) return false;
  finish();
  const std::int64_t wanted = std::min(std::max({kLeast, 2 * capacity_, 2 * bytes}), kMost);
  if (wanted > capacity_) {
    give_back();
    void* aside = nullptr;
    void* host = nullptr;
    const auto size = static_cast<std::size_t>(wanted);
    if (cudaMallocFromPoolAsync(&aside, size, memory_pool(), stream()) == cudaSuccess) {
      aside_ = static_cast<std::byte*>(aside);
    }
    if (cudaMallocHost(&host, size) == cudaSuccess) host_ = static_cast<std::byte*>(host);
    if (aside == nullptr || host == nullptr) {
      (void)cudaGetLastError();
      give_back();
      return false;
    }
    capacity_ = wanted;
  }
  return bytes <= capacity_;
}

bool Readback::add(const void* block, std::int64_t bytes, MemoryResource::Reader& reader) {
  if (!make_room(bytes)) return false;
  reads_.push_back({block, bytes, used_, std::move(reader)});
  used_ =
      std::min(capacity_, (used_ + bytes + kReadAlignment - 1) / kReadAlignment * kReadAlignment);
  if (reads_.size() - settled_ >= kMoves) settle();
  return true;
}

void Readback::settle(const void* block) noexcept {
  for (std::size_t i = settled_; i < reads_.size(); ++i) {
    if (reads_[i].block == block) return settle();
  }
}

void Readback::settle() noexcept {
  for (; settled_ < reads_.size(); ++settled_) {
    const Read& read = reads_[settled_];
    context().deferred.copy(aside_ + read.at, read.block, read.bytes);
  }
}

void Readback::finish() {
  if (reads_.empty()) return;
  settle();
  const std::vector<Read> reads = std::exchange(reads_, {});
  const std::int64_t bytes = std::exchange(used_, 0);
  settled_ = 0;
  copy_to_host(host_, aside_, bytes);
  for (const Read& read : reads) {
    read.reader({host_ + read.at, static_cast<std::size_t>(read.bytes)});
  }
}

void Readback::drop() noexcept {
  reads_.clear();
  settled_ = 0;
  used_ = 0;
}

}  // namespace rematch::cuda
