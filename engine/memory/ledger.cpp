#include "engine/memory/ledger.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>

namespace rematch {
namespace {

constexpr std::int64_t kAlignment = 64;
constexpr std::int64_t kMaxCachedBytes = std::int64_t{1} << 30;

// Under AddressSanitizer a reused block would hide a use after free.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kReuseBlocks = false;
#else
constexpr bool kReuseBlocks = true;
#endif

struct SizeClass {
  std::size_t index;
  std::int64_t bytes;
};

// Four classes per power of two from 64 bytes on: at most a quarter of a block is slack.
SizeClass size_class(std::int64_t bytes) {
  const auto need = static_cast<std::uint64_t>(std::max(bytes, kAlignment));
  const int log2 = std::bit_width(need - 1) - 1;
  const int shift = std::max(log2 - 2, 6);
  const std::uint64_t units = (need + (std::uint64_t{1} << shift) - 1) >> shift;
  return {static_cast<std::size_t>(shift - 6) * 8 + static_cast<std::size_t>(units),
          static_cast<std::int64_t>(units << shift)};
}

}  // namespace

std::string_view to_string(Tag tag) {
  constexpr std::array<std::string_view, kTagCount> names{"parameters", "state", "inputs",
                                                          "gradients",  "saved", "temporaries"};
  return names[static_cast<std::size_t>(tag)];
}

Ledger::~Ledger() { trim(); }

void* Ledger::allocate(std::int64_t bytes, Tag tag) {
  if (fail_in_ > 0 && --fail_in_ == 0) {
    throw OutOfMemory("[ledger] out of memory: injected failure of an allocation of " +
                      std::to_string(bytes) + " bytes");
  }
  if (limit_ && live_ + bytes > *limit_) {
    throw OutOfMemory("[ledger] out of memory: " + std::to_string(bytes) + " bytes requested, " +
                      std::to_string(live_) + " live, limit " + std::to_string(*limit_) +
                      "; raise the limit, shrink the batch, or checkpoint more segments");
  }
  void* block = nullptr;
  if (bytes > 0) {
    const SizeClass c = size_class(bytes);
    if (c.index < cache_.size() && !cache_[c.index].empty()) {
      block = cache_[c.index].back();
      cache_[c.index].pop_back();
      cached_bytes_ -= c.bytes;
    } else {
      block = std::aligned_alloc(kAlignment, static_cast<std::size_t>(c.bytes));
      if (block == nullptr) {
        throw OutOfMemory("[ledger] out of memory: the system refused " + std::to_string(bytes) +
                          " bytes with " + std::to_string(live_) + " live");
      }
    }
  }
  live_ += bytes;
  peak_ = std::max(peak_, live_);
  total_ += bytes;
  ++allocations_;
  by_tag_[static_cast<std::size_t>(tag)] += bytes;
  if (record_timeline_) log(LedgerEvent::Kind::allocate, bytes, tag);
  return block;
}

void Ledger::release(void* block, std::int64_t bytes, Tag tag) noexcept {
  live_ -= bytes;
  by_tag_[static_cast<std::size_t>(tag)] -= bytes;
  if (record_timeline_) log(LedgerEvent::Kind::release, bytes, tag);
  if (block == nullptr) return;
  if (poison_) std::memset(block, 0xff, static_cast<std::size_t>(bytes));
  const SizeClass c = size_class(bytes);
  if (kReuseBlocks && cached_bytes_ + c.bytes <= kMaxCachedBytes) {
    if (c.index >= cache_.size()) cache_.resize(c.index + 1);
    cache_[c.index].push_back(block);
    cached_bytes_ += c.bytes;
  } else {
    std::free(block);
  }
}

void Ledger::retag(std::int64_t bytes, Tag from, Tag to) noexcept {
  by_tag_[static_cast<std::size_t>(from)] -= bytes;
  by_tag_[static_cast<std::size_t>(to)] += bytes;
  if (record_timeline_) log(LedgerEvent::Kind::retag, bytes, to);
}

void Ledger::log(LedgerEvent::Kind kind, std::int64_t bytes, Tag tag) {
  timeline_.push_back({kind, tag, bytes, live_, live(Tag::saved), label_});
}

void Ledger::trim() noexcept {
  for (auto& blocks : cache_) {
    for (void* block : blocks) std::free(block);
    blocks.clear();
  }
  cached_bytes_ = 0;
}

}  // namespace rematch
