#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "engine/memory/resource.h"

namespace rematch {

/// The purpose of a byte. A storage carries one tag at a time; a temporary that the autograd graph
/// saves is tagged `saved` for as long as a node holds it.
enum class Tag : std::uint8_t { parameters, state, inputs, gradients, saved, temporaries };
inline constexpr int kTagCount = 6;
std::string_view to_string(Tag tag);

/// The byte limit was reached or an injected failure struck. Nothing was allocated.
class OutOfMemory : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The memory itself had no more to give, whatever the limit.
class MemoryExhausted : public OutOfMemory {
 public:
  using OutOfMemory::OutOfMemory;
};

struct LedgerEvent {
  enum class Kind : std::uint8_t { allocate, release, retag };
  Kind kind{};
  Tag tag{};
  std::int64_t bytes = 0;
  /// Live bytes of all tags, and of Tag::saved, after the event.
  std::int64_t live = 0;
  std::int64_t saved = 0;
  /// Whatever set_label() last said; the harness uses it to place the event.
  std::int32_t label = 0;
  /// Address of what was allocated or released; nullptr for a retag, and for no bytes.
  const void* block = nullptr;
};

/// Allocator that accounts for every requested byte.
///
/// Bytes are those asked for, never rounded, so two runs of one program give the same figures on
/// every machine and for every kind of memory. Blocks are aligned to 64 bytes or more. A ledger
/// and the tensors made from it belong to one thread at a time.
class Ledger {
 public:
  /// Counts host memory.
  Ledger();
  explicit Ledger(std::unique_ptr<MemoryResource> memory);
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  /// `bytes` >= 0; zero bytes give nullptr and count as an allocation of nothing.
  /// Throws OutOfMemory past the limit, by injection, or when the resource has no more.
  void* allocate(std::int64_t bytes, Tag tag);
  void release(void* block, std::int64_t bytes, Tag tag) noexcept;
  void retag(std::int64_t bytes, Tag from, Tag to) noexcept;

  std::int64_t live() const { return live_; }
  std::int64_t live(Tag tag) const { return by_tag_[static_cast<std::size_t>(tag)]; }
  /// Highest live() since construction or reset_peak().
  std::int64_t peak() const { return peak_; }
  /// Sum of all bytes ever requested, and the number of requests.
  std::int64_t total() const { return total_; }
  std::int64_t allocations() const { return allocations_; }
  void reset_peak() { peak_ = live_; }

  /// Live bytes may not exceed this; nullopt lifts the limit.
  void set_limit(std::optional<std::int64_t> bytes) { limit_ = bytes; }
  /// The k-th allocation from now (1 is the next) throws OutOfMemory, once; 0 disarms.
  void fail_allocation(std::int64_t k) { fail_in_ = k; }
  /// Freed blocks are filled with 0xff bytes, a NaN in both float formats, so that a stale read
  /// shows.
  void set_poison(bool on) { poison_ = on; }

  void record_timeline(bool on) { record_timeline_ = on; }
  const std::vector<LedgerEvent>& timeline() const { return timeline_; }
  void clear_timeline() { timeline_.clear(); }
  void set_label(std::int32_t label) { label_ = label; }

  /// Gives cached blocks back to the system.
  void trim() noexcept { memory_->trim(); }
  /// Bytes that the resource holds from the system, beside the requested ones that live() counts.
  std::int64_t reserved() const { return memory_->reserved(); }
  MemoryResource& memory() const { return *memory_; }
  Device device() const { return memory_->device(); }

 private:
  void log(LedgerEvent::Kind kind, std::int64_t bytes, Tag tag, const void* block = nullptr);

  std::unique_ptr<MemoryResource> memory_;
  std::int64_t live_ = 0;
  std::int64_t peak_ = 0;
  std::int64_t total_ = 0;
  std::int64_t allocations_ = 0;
  std::int64_t fail_in_ = 0;
  std::array<std::int64_t, kTagCount> by_tag_{};
  std::optional<std::int64_t> limit_;
  std::int32_t label_ = 0;
  bool poison_ = false;
  bool record_timeline_ = false;
  std::vector<LedgerEvent> timeline_;
};

}  // namespace rematch
