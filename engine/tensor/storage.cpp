#include "engine/tensor/storage.h"

#include <atomic>
#include <utility>

#include "engine/ambient/ambient.h"

namespace rematch {

Storage::Storage(std::int64_t bytes, Tag tag) : Storage(ambient().ledger, bytes, tag) {}

Storage::Storage(std::shared_ptr<Ledger> ledger, std::int64_t bytes, Tag tag)
    : id_(id_counter()++),
      ledger_(std::move(ledger)),
      data_(static_cast<std::byte*>(ledger_->allocate(bytes, tag))),
      bytes_(bytes),
      tag_(tag) {}

std::uint64_t& Storage::id_counter() {
  static std::atomic<std::uint64_t> threads{1};
  thread_local std::uint64_t next = threads++ << kIdBitsOfThread;
  return next;
}

std::uint64_t Storage::next_id() { return id_counter(); }

Storage::~Storage() { ledger_->release(data_, bytes_, tag()); }

void Storage::set_tag(Tag tag) noexcept {
  const Tag before = this->tag();
  tag_ = tag;
  if (this->tag() != before) ledger_->retag(bytes_, before, this->tag());
}

void Storage::hold() noexcept {
  if (++saves_ == 1 && tag_ == Tag::temporaries) {
    ledger_->retag(bytes_, Tag::temporaries, Tag::saved);
  }
}

void Storage::drop() noexcept {
  if (--saves_ == 0 && tag_ == Tag::temporaries) {
    ledger_->retag(bytes_, Tag::saved, Tag::temporaries);
  }
}

}  // namespace rematch
