#include "properties/subjects/observe.h"

#include <algorithm>
#include <span>

namespace rematch {
namespace {

void take(const Observation& o, std::span<const std::byte> values, Record& record) {
  const auto to = std::span(record.data).subspan(o.offset, o.bytes);
  std::copy(values.begin(), values.end(), to.begin());
  if (is_floating(o.dtype)) canonical_nans(to, size_of(o.dtype));
}

}  // namespace

void observe(const ObservationKey& key, const Tensor& t, Record& record) {
  Observation o;
  o.quantity = key.quantity;
  o.step = key.step;
  o.microbatch = key.microbatch;
  o.index = key.index;
  o.present = t.defined();
  if (t.defined()) {
    o.requires_grad = t.requires_grad();
    o.dtype = t.dtype();
    o.shape = t.shape();
    o.offset = record.data.size();
    o.bytes = static_cast<std::size_t>(t.bytes());
    record.data.resize(o.offset + o.bytes);
    if (t.device() == Device::cpu) {
      take(o, {t.raw(), o.bytes}, record);
    } else {
      t.storage()->memory().read(t.raw(), t.bytes(),
                                 [o, &record](auto values) { take(o, values, record); });
    }
  }
  record.observations.push_back(o);
}

}  // namespace rematch
