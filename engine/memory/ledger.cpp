#include "engine/memory/ledger.h"

#include <algorithm>
#include <utility>

namespace rematch {

std::string_view to_string(Tag tag) {
  constexpr std::array<std::string_view, kTagCount> names{"parameters", "state", "inputs",
                                                          "gradients",  "saved", "temporaries"};
  return names[static_cast<std::size_t>(tag)];
}

Ledger::Ledger() : Ledger(host_memory()) {}

Ledger::Ledger(std::unique_ptr<MemoryResource> memory) : memory_(std::move(memory)) {}

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
    block = memory_->allocate(bytes);
    if (block == nullptr) {
      throw MemoryExhausted("[ledger] out of memory: " + std::string(memory_->name()) +
                            " refused " + std::to_string(bytes) + " bytes with " +
                            std::to_string(live_) + " live");
    }
  }
  live_ += bytes;
  peak_ = std::max(peak_, live_);
  total_ += bytes;
  ++allocations_;
  by_tag_[static_cast<std::size_t>(tag)] += bytes;
  if (record_timeline_) log(LedgerEvent::Kind::allocate, bytes, tag, block);
  return block;
}

void Ledger::release(void* block, std::int64_t bytes, Tag tag) noexcept {
  live_ -= bytes;
  by_tag_[static_cast<std::size_t>(tag)] -= bytes;
  if (record_timeline_) log(LedgerEvent::Kind::release, bytes, tag, block);
  if (block == nullptr) return;
  if (poison_) memory_->poison(block, bytes);
  memory_->release(block, bytes);
}

void Ledger::retag(std::int64_t bytes, Tag from, Tag to) noexcept {
  by_tag_[static_cast<std::size_t>(from)] -= bytes;
  by_tag_[static_cast<std::size_t>(to)] += bytes;
  if (record_timeline_) log(LedgerEvent::Kind::retag, bytes, to);
}

void Ledger::log(LedgerEvent::Kind kind, std::int64_t bytes, Tag tag, const void* block) {
  timeline_.push_back({kind, tag, bytes, live_, live(Tag::saved), label_, block});
}

}  // namespace rematch
