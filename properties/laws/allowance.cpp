#include "properties/laws/allowance.h"

#include <algorithm>
#include <map>

#include "properties/laws/support.h"

namespace rematch {
namespace {

bool counts(const LayerValue& v) {
  return v.step == 0 && v.microbatch == 0 && v.execution == 0 && v.memory != 0;
}

}  // namespace

Allowance::Allowance(const Evidence& e)
    : e_(e), inside_(e.c.layers.size(), false), keeps_(policy_may_keep(e.c.options)) {
  for (const SegmentSpec& s : segments_of(e.c)) add(s, true);
}

std::int64_t Allowance::saved_plain() const {
  std::int64_t saved = 0;
  for (const ByteReading& r : e_.plain.bytes) {
    if (r.moment == Moment::after_forward && r.step == 0 && r.microbatch == 0) saved = r.saved;
  }
  return saved;
}

std::int64_t Allowance::saved() const {
  // Memory by its name, once, whoever saves it. Others may save, too, what segments drop.
  std::map<std::uint64_t, std::int64_t> dropped;
  for (const LayerValue& v : e_.plain.values) {
    if (counts(v) && v.saved && inside(v)) dropped[v.memory] = v.bytes;
  }
  for (const LayerValue& v : e_.plain.values) {
    if (counts(v) && v.saved && !inside(v)) dropped.erase(v.memory);
  }
  std::int64_t saved = saved_plain();
  for (const auto& [memory, size] : dropped) saved -= size;
  // A loss may save the output that it reads, which a layer of a segment saved before.
  for (const ValueRef& output : e_.geometry.live.back()) {
    saved += size_of_value(output);
    if (!e_.c.protocol.auxiliary_losses) break;
  }
  return saved + inputs_ + kept();
}

bool Allowance::inside(const LayerValue& v) const {
  return v.layer >= 0 && inside_.at(static_cast<std::size_t>(v.layer));
}

std::int64_t Allowance::size_of_value(const ValueRef& v) const {
  const bool tokens = v.layer < 0 && vocabulary_of(e_.c.layers) > 0;
  return static_cast<std::int64_t>(size_of(tokens ? DType::int32 : e_.c.dtype)) *
         e_.geometry.shape_of(v, Shape(e_.c.input)).elements();
}

/// Anything that a layer of a segment made may be kept by a policy.
std::int64_t Allowance::kept() const {
  std::int64_t bytes = 0;
  for (const LayerValue& v : e_.plain.values) {
    if (keeps_ && counts(v) && inside(v)) bytes += v.bytes;
  }
  return bytes;
}

void Allowance::add(const SegmentSpec& s, bool outermost) {
  for (const ValueRef& v : e_.geometry.live[static_cast<std::size_t>(s.begin)]) {
    if (outermost) inputs_ += size_of_value(v);
  }
  if (outermost) std::fill(inside_.begin() + s.begin, inside_.begin() + s.end, true);
  keeps_ = keeps_ || !s.choice.keep.empty();
  for (const SegmentSpec& nested : s.nested) add(nested, false);
}

}  // namespace rematch
