#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace rematch {

/// Where a block of memory lies.
enum class Device : std::uint8_t { cpu, cuda };
std::string_view to_string(Device device);

/// Where a ledger gets its blocks from. The ledger counts, limits and injects failures; a resource
/// only hands out memory, so every kind of memory obeys the same ledger. Like its ledger, a
/// resource belongs to one thread at a time.
class MemoryResource {
 public:
  MemoryResource() = default;
  MemoryResource(const MemoryResource&) = delete;
  MemoryResource& operator=(const MemoryResource&) = delete;
  virtual ~MemoryResource() = default;

  /// An uninitialised block of at least `bytes` > 0, aligned to 64 bytes or more; nullptr when
  /// there is no more.
  virtual void* allocate(std::int64_t bytes) = 0;
  /// Takes back a block that allocate(bytes) gave, and may hand it out again.
  virtual void release(void* block, std::int64_t bytes) noexcept = 0;
  /// Fills `bytes` of a block that is about to be released with 0xff, after all work on it that was
  /// started before.
  virtual void poison(void* block, std::int64_t bytes) noexcept = 0;
  /// Copies into a block of this resource from the host, out of one to the host, and from one block
  /// to another, after all work on them that was started before. When a call returns, the host's
  /// memory is the caller's again: what was copied out is there, what was copied in may change.
  virtual void copy_in(void* block, const void* host, std::int64_t bytes) = 0;
  virtual void copy_out(void* host, const void* block, std::int64_t bytes) = 0;
  virtual void copy(void* to, const void* from, std::int64_t bytes) = 0;
  /// Work that writes to a block is about to be queued: it is to come after copies out of the block
  /// that run beside the queue (engine/autograd/offload.h).
  virtual void before_write(const void* /*block*/) {}
  using Reader = std::function<void(std::span<const std::byte>)>;
  /// Hands `reader` the bytes of a block as they are now, after all work on them that was started
  /// before: at once, or where many are brought over together by the end of finish_reads(). Until
  /// then before_write() is to be told of writes to the block; it may be released.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): resources that read later keep it.
  virtual void read(const void* block, std::int64_t bytes, Reader reader) {
    std::vector<std::byte> host(static_cast<std::size_t>(bytes));
    if (bytes > 0) copy_out(host.data(), block, bytes);
    reader(host);
  }
  virtual void finish_reads() {}
  /// Forgets the readers that have not been called.
  virtual void drop_reads() noexcept {}
  /// Whether poison may wait until just before the block is handed out again, for the sake of
  /// speed.
  virtual void set_late_poison(bool /*on*/) {}
  /// Gives up blocks that are kept for reuse.
  virtual void trim() noexcept = 0;
  /// Bytes held from the system: those in use with their rounding, and those kept for reuse. On a
  /// device it is the whole process's figure, for all resources there share one pool.
  [[nodiscard]] virtual std::int64_t reserved() const noexcept = 0;
  [[nodiscard]] virtual Device device() const noexcept = 0;
  /// Who refuses when there is no more, for error messages: "the system".
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
};

/// Blocks of the host, kept for reuse by size class up to 1 GiB; not kept under AddressSanitizer,
/// where reuse would hide a use after free.
std::unique_ptr<MemoryResource> host_memory();

}  // namespace rematch
