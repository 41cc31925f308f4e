#include "engine/emulator/memory.h"

#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <span>
#include <string_view>
#include <tuple>
#include <vector>

#include "engine/emulator/stream.h"

struct CUmemPoolHandle_st {
  std::uint64_t reserved = 0;
  std::uint64_t reserved_high = 0;
  std::uint64_t used = 0;
  std::uint64_t used_high = 0;
};

namespace rematch::emulator {

namespace {

constexpr std::size_t kTotal = std::size_t{4} << 30;
/// Addresses are used up more quickly than bytes, for sizes are not mixed.
constexpr std::size_t kAddresses = 4 * kTotal;
constexpr std::size_t kGrain = 512;
constexpr std::size_t kPage = 4096;
/// Larger blocks give their pages back: the area is locked and unlocked at every call, in a time
/// that goes with the pages that it has.
constexpr std::size_t kKeepsPages = std::size_t{1} << 16;
/// Unwritten and freed memory: NaN in every type.
constexpr int kUnwritten = 0xff;

struct Block {
  /// Size that was asked for; an access beyond is out of bounds.
  std::size_t bytes = 0;
  std::size_t size = 0;
  cudaMemPool_t pool = nullptr;
  bool is_live = false;
};

/// All blocks of the device, in an area of addresses of its own.
struct Device {
  std::byte* base = nullptr;
  std::size_t used_addresses = 0;
  std::size_t taken = 0;
  int unlocked = 0;
  bool is_lockable = true;
  std::map<std::byte*, Block> blocks;
  /// By pool, stream and size. A block that a stream has freed may serve the same stream at once,
  /// before its work is done; others have to wait for that.
  std::map<std::tuple<cudaMemPool_t, cudaStream_t, std::size_t>, std::vector<std::byte*>> kept;
  std::map<std::byte*, std::size_t> pinned;
  std::size_t pinned_bytes = 0;
  /// Pinned blocks that were freed while copies may still have been queued for them.
  std::vector<void*> unpinned;
};

Device& device() {
  static auto* const instance = [] {
    auto* const d = new Device;
    const char* const lock = std::getenv("REMATCH_EMULATOR_LOCK");
    d->is_lockable = lock == nullptr || std::string_view(lock) != "off";
    void* const area =
        mmap(nullptr, kAddresses, d->is_lockable ? PROT_NONE : PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (area == MAP_FAILED) std::abort();
    d->base = static_cast<std::byte*>(area);
    return d;
  }();
  return *instance;
}

/// Eight sizes from one power of two to the next, so that blocks find another use.
std::size_t size_class(std::size_t bytes) {
  // Whole pages where pages are given back.
  const std::size_t least = bytes >= kKeepsPages ? kPage : kGrain;
  const std::size_t grain = std::max(least, std::bit_floor(bytes) / 8);
  return (std::max<std::size_t>(bytes, 1) + grain - 1) / grain * grain;
}

/// On a stream in its order, or at once.
void fill_unwritten(cudaStream_t s, std::byte* block, std::size_t size) {
  enqueue(s, [=] {
    // Both ends of a library's workspace, which may be huge.
    constexpr std::size_t kEnd = std::size_t{16} << 20;
    std::memset(block, kUnwritten, std::min(size, kEnd));
    if (size > kEnd) std::memset(block + size - kEnd, kUnwritten, kEnd);
  });
}

std::byte* allocate(cudaMemPool_t pool, cudaStream_t s, std::size_t bytes) {
  Device& d = device();
  const std::size_t size = size_class(bytes);
  std::byte* block = nullptr;
  auto& kept = d.kept[{pool, s, size}];
  if (!kept.empty()) {
    block = kept.back();
    kept.pop_back();
  } else {
    if (size > kTotal - d.taken || size > kAddresses - d.used_addresses) return nullptr;
    d.used_addresses = (d.used_addresses + kPage - 1) / kPage * kPage;
    block = d.base + d.used_addresses;
    d.used_addresses += size;
    d.taken += size;
    if (pool != nullptr) pool->reserved += size;
  }
  if (pool != nullptr) {
    pool->used += size;
    pool->used_high = std::max(pool->used_high, pool->used);
    pool->reserved_high = std::max(pool->reserved_high, pool->reserved);
  }
  fill_unwritten(s, block, size);
  d.blocks[block] = {bytes, size, pool, true};
  return block;
}

/// Whether [at, at + bytes) lies in one live block of the device.
bool is_on_device(const void* at, std::size_t bytes) {
  Device& d = device();
  auto* const first = static_cast<std::byte*>(const_cast<void*>(at));
  auto next = d.blocks.upper_bound(first);
  if (next == d.blocks.begin()) return false;
  const auto& [begin, block] = *--next;
  return block.is_live && first + bytes <= begin + block.bytes;
}

bool is_pinned(const void* at, std::size_t bytes) {
  Device& d = device();
  auto* const first = static_cast<std::byte*>(const_cast<void*>(at));
  auto next = d.pinned.upper_bound(first);
  if (next == d.pinned.begin()) return false;
  const auto& [begin, size] = *--next;
  return first + bytes <= begin + size;
}

bool is_in_device_area(const void* at) {
  const auto* const p = static_cast<const std::byte*>(at);
  return p >= device().base && p < device().base + kAddresses;
}

void permit(int access) {
  Device& d = device();
  if (d.is_lockable && mprotect(d.base, kAddresses, access) != 0) std::abort();
}

struct Ends {
  bool from_device;
  bool to_device;
};
Ends ends(cudaMemcpyKind kind) {
  return {kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice,
          kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice};
}

Asked asked_by(Ends e) {
  if (!e.from_device) return Asked::upload;
  return e.to_device ? Asked::copy : Asked::download;
}

/// Whether both ends are where `kind` says.
bool is_right(void* to, const void* from, std::size_t bytes, Ends e) {
  const auto end_is_right = [bytes](const void* at, bool on_device) {
    return on_device ? is_on_device(at, bytes) : !is_in_device_area(at);
  };
  return end_is_right(to, e.to_device) && end_is_right(from, e.from_device);
}

}  // namespace

std::span<std::byte> reachable_block(const void* at) {
  auto* const byte = static_cast<std::byte*>(const_cast<void*>(at));
  Device& d = device();
  if (auto next = d.blocks.upper_bound(byte); next != d.blocks.begin()) {
    const auto& [begin, block] = *--next;
    // A stream may come to a launch when the host has freed the pool's block in its order, or has
    // been given it again.
    const std::size_t bytes = block.pool == nullptr ? block.bytes : block.size;
    if ((block.is_live || block.pool != nullptr) && byte < begin + bytes) return {begin, bytes};
  }
  if (auto next = d.pinned.upper_bound(byte); next != d.pinned.begin()) {
    const auto& [begin, size] = *--next;
    if (byte < begin + size) return {begin, size};
  }
  return {};
}

Unlocked::Unlocked() {
  device_lock().lock();
  if (device().unlocked++ == 0) permit(PROT_READ | PROT_WRITE);
}

Unlocked::~Unlocked() {
  if (--device().unlocked == 0) permit(PROT_NONE);
  device_lock().unlock();
}

}  // namespace rematch::emulator

using namespace rematch::emulator;

cudaError_t cudaMalloc(void** block, std::size_t bytes) {
  if (outcome() != cudaSuccess) return outcome();
  const std::lock_guard hold(device_lock());
  if (forbidden_in_capture()) return failed(cudaErrorStreamCaptureUnsupported);
  *block = allocate(nullptr, nullptr, bytes);
  return *block == nullptr ? failed(cudaErrorMemoryAllocation) : cudaSuccess;
}

cudaError_t cudaFree(void* block) {
  if (outcome() != cudaSuccess) return outcome();
  const std::lock_guard hold(device_lock());
  if (block == nullptr) return cudaSuccess;
  if (forbidden_in_capture()) return failed(cudaErrorStreamCaptureUnsupported);
  Device& d = device();
  const auto found = d.blocks.find(static_cast<std::byte*>(block));
  if (found == d.blocks.end() || !found->second.is_live) return failed(cudaErrorInvalidValue);
  drain_all();
  if (found->second.size >= kKeepsPages) {
    (void)madvise(block, found->second.size, MADV_DONTNEED);
  } else {
    fill_unwritten(nullptr, found->first, found->second.size);
  }
  found->second.is_live = false;
  d.kept[{nullptr, nullptr, found->second.size}].push_back(found->first);
  return cudaSuccess;
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* /*properties*/) {
  *pool = new CUmemPoolHandle_st;
  return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t /*pool*/, cudaMemPoolAttr attribute,
                                    void* /*value*/) {
  return attribute == cudaMemPoolAttrReleaseThreshold ? cudaSuccess : failed(cudaErrorInvalidValue);
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  if (outcome() != cudaSuccess) return outcome();
  const std::lock_guard hold(device_lock());
  const std::uint64_t* from = nullptr;
  if (attribute == cudaMemPoolAttrReservedMemCurrent) from = &pool->reserved;
  if (attribute == cudaMemPoolAttrReservedMemHigh) from = &pool->reserved_high;
  if (attribute == cudaMemPoolAttrUsedMemHigh) from = &pool->used_high;
  if (from == nullptr) return failed(cudaErrorInvalidValue);
  std::memcpy(value, from, sizeof *from);
  return cudaSuccess;
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, std::size_t /*least*/) {
  if (outcome() != cudaSuccess) return outcome();
  const std::lock_guard hold(device_lock());
  Device& d = device();
  for (auto at = d.kept.begin(); at != d.kept.end();) {
    const auto& [owner, stream, size] = at->first;
    // Blocks whose release the stream has yet to come to stay.
    if (owner != pool || stream->done != stream->queued) {
      ++at;
      continue;
    }
    const std::size_t bytes = size * at->second.size();
    pool->reserved -= bytes;
    d.taken -= bytes;
    for (std::byte* const block : at->second) {
      (void)madvise(block, size, MADV_DONTNEED);
      d.blocks.erase(block);
    }
    at = d.kept.erase(at);
  }
  return cudaSuccess;
}

cudaError_t cudaMallocFromPoolAsync(void** block, std::size_t bytes, cudaMemPool_t pool,
                                    cudaStream_t s) {
  if (outcome() != cudaSuccess) return outcome();
  const std::lock_guard hold(device_lock());
  if (s->capture != nullptr) {
    (void)forbidden_in_capture();
    return failed(cudaErrorStreamCaptureUnsupported);
  }
  *block = allocate(pool, s, bytes);
  return *block == nullptr ? failed(cudaErrorMemoryAllocation) : cudaSuccess;
}

cudaError_t cudaFreeAsync(void* block, cudaStream_t s) {
  if (outcome() != cudaSuccess) return outcome();
  const std::lock_guard hold(device_lock());
  if (s->capture != nullptr) {
    (void)forbidden_in_capture();
    return failed(cudaErrorStreamCaptureUnsupported);
  }
  Device& d = device();
  const auto found = d.blocks.find(static_cast<std::byte*>(block));
  if (found == d.blocks.end() || !found->second.is_live || found->second.pool == nullptr) {
    return failed(cudaErrorInvalidValue);
  }
  const std::size_t size = found->second.size;
  enqueue(s, [block, size] {
    if (size >= kKeepsPages) {
      (void)madvise(block, size, MADV_DONTNEED);
    } else {
      std::memset(block, kUnwritten, size);
    }
  });
  found->second.is_live = false;
  found->second.pool->used -= size;
  d.kept[{found->second.pool, s, size}].push_back(found->first);
  return cudaSuccess;
}

cudaError_t cudaMallocHost(void** block, std::size_t bytes) {
  if (outcome() != cudaSuccess) return outcome();
  const std::lock_guard hold(device_lock());
  if (forbidden_in_capture()) return failed(cudaErrorStreamCaptureUnsupported);
  Device& d = device();
  // As much as the device has is all that can be pinned.
  *block = bytes > kTotal - d.pinned_bytes
               ? nullptr
               : std::aligned_alloc(kPage, (bytes + kPage - 1) / kPage * kPage);
  if (*block == nullptr) return failed(cudaErrorMemoryAllocation);
  std::memset(*block, kUnwritten, bytes);
  d.pinned[static_cast<std::byte*>(*block)] = bytes;
  d.pinned_bytes += bytes;
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* block) {
  if (outcome() != cudaSuccess) return outcome();
  const std::lock_guard hold(device_lock());
  if (block == nullptr) return cudaSuccess;
  if (forbidden_in_capture()) return failed(cudaErrorStreamCaptureUnsupported);
  Device& d = device();
  const auto found = d.pinned.find(static_cast<std::byte*>(block));
  if (found == d.pinned.end()) return failed(cudaErrorInvalidValue);
  // Copies that are still queued find garbage. The memory itself stays until they are done.
  std::memset(block, kUnwritten, found->second);
  d.pinned_bytes -= found->second;
  d.pinned.erase(found);
  d.unpinned.push_back(block);
  if (!is_idle()) return cudaSuccess;
  for (void* const each : d.unpinned) std::free(each);
  d.unpinned.clear();
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t s) {
  if (outcome() != cudaSuccess) return outcome();
  const std::lock_guard hold(device_lock());
  if (bytes == 0) return cudaSuccess;
  const Ends e = ends(kind);
  if (!is_right(to, from, bytes, e)) return failed(cudaErrorInvalidValue);
  count(asked_by(e));
  // The device can read pageable memory (cudaDevAttrPageableMemoryAccess), so nothing is staged:
  // the source is read when the copy runs.
  enqueue(s, [=] { std::memcpy(to, from, bytes); });
  // Memory that the device cannot write is filled when the call returns.
  if (s->capture == nullptr && !e.to_device && !is_pinned(to, bytes)) drain(s);
  return outcome();
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  if (outcome() != cudaSuccess) return outcome();
  const std::lock_guard hold(device_lock());
  if (forbidden_in_capture()) return failed(cudaErrorStreamCaptureUnsupported);
  const Ends e = ends(kind);
  if (!is_right(to, from, bytes, e)) return failed(cudaErrorInvalidValue);
  count(asked_by(e));
  const Unlocked memory;
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t s) {
  if (outcome() != cudaSuccess) return outcome();
  const std::lock_guard hold(device_lock());
  if (bytes == 0) return cudaSuccess;
  if (!is_on_device(to, bytes) && !is_pinned(to, bytes)) return failed(cudaErrorInvalidValue);
  count(Asked::fill);
  enqueue(s, [=] { std::memset(to, value, bytes); });
  return cudaSuccess;
}

cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  if (outcome() != cudaSuccess) return outcome();
  const std::lock_guard hold(device_lock());
  if (forbidden_in_capture()) return failed(cudaErrorStreamCaptureUnsupported);
  if (!is_on_device(to, bytes)) return failed(cudaErrorInvalidValue);
  count(Asked::fill);
  const Unlocked memory;
  std::memset(to, value, bytes);
  return cudaSuccess;
}
