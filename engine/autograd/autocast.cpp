#include "engine/autograd/autocast.h"

#include <utility>

#include "engine/tensor/accumulate.h"

namespace rematch {

Tensor CastCache::find(const Tensor& t) const {
  const auto entry = entries_.find(t.storage()->id());
  if (entry == entries_.end() || entry->second.version != t.version()) return {};
  return reshape_alias(entry->second.values, t.shape());
}

void CastCache::put(const Tensor& t, const Tensor& values) {
  entries_.insert_or_assign(t.storage()->id(), Entry{t.version(), values.detach()});
}

AutocastScope::AutocastScope(bool enabled, bool cache) : outer_(ambient().autocast) {
  if (!outer_.cache) made_ = std::make_shared<CastCache>();
  ambient().autocast = {enabled, DType::bfloat16, cache, made_ ? made_ : outer_.cache};
}

AutocastScope::~AutocastScope() {
  // Copies of the ambient state may share it.
  if (made_) made_->clear();
  ambient().autocast = std::move(outer_);
}

}  // namespace rematch
