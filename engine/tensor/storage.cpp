#include "engine/tensor/storage.h"

#include <utility>

#include "engine/ambient/ambient.h"

namespace rematch {

Storage::Storage(std::int64_t bytes, Tag tag) : Storage(ambient().ledger, bytes, tag) {}

Storage::Storage(std::shared_ptr<Ledger> ledger, std::int64_t bytes, Tag tag)
    : ledger_(std::move(ledger)),
      data_(static_cast<std::byte*>(ledger_->allocate(bytes, tag))),
      bytes_(bytes),
      tag_(tag) {}

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
