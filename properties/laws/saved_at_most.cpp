#include <algorithm>
#include <map>

#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kSavedAtMost = "saved-at-most";

/// The most that a plan may save after one forward, from what the plain run shows.
class Allowance {
 public:
  explicit Allowance(const Evidence& e)
      : e_(e), inside_(e.c.layers.size(), false), keeps_(policy_may_keep(e.c.options)) {
    for (const SegmentSpec& s : segments_of(e.c)) add(s, true);
  }

  std::int64_t bytes() const {
    // Memory by its name, once, whoever saves it. Others may save, too, what segments drop.
    std::map<std::uint64_t, std::int64_t> dropped;
    for (const LayerValue& v : e_.plain.values) {
      if (counts(v) && v.saved && inside(v)) dropped[v.memory] = v.bytes;
    }
    for (const LayerValue& v : e_.plain.values) {
      if (counts(v) && v.saved && !inside(v)) dropped.erase(v.memory);
    }
    std::int64_t saved = 0;
    for (const ByteReading& r : e_.plain.bytes) {
      if (r.moment == Moment::after_forward && r.step == 0 && r.microbatch == 0) saved = r.saved;
    }
    for (const auto& [memory, size] : dropped) saved -= size;
    // A loss may save the output that it reads, which a layer of a segment saved before.
    for (const ValueRef& output : e_.geometry.live.back()) {
      saved += size_of_value(output);
      if (!e_.c.protocol.auxiliary_losses) break;
    }
    return saved + inputs_ + kept();
  }

  /// Whether a policy keeps anything.
  bool keeps() const { return keeps_; }

 private:
  static bool counts(const LayerValue& v) {
    return v.step == 0 && v.microbatch == 0 && v.execution == 0 && v.memory != 0;
  }
  bool inside(const LayerValue& v) const {
    return v.layer >= 0 && inside_.at(static_cast<std::size_t>(v.layer));
  }

  std::int64_t size_of_value(const ValueRef& v) const {
    const bool tokens = v.layer < 0 && vocabulary_of(e_.c.layers) > 0;
    return static_cast<std::int64_t>(size_of(tokens ? DType::int32 : e_.c.dtype)) *
           e_.geometry.shape_of(v, Shape(e_.c.input)).elements();
  }

  void add(const SegmentSpec& s, bool outermost) {
    for (const ValueRef& v : e_.geometry.live[static_cast<std::size_t>(s.begin)]) {
      // Inputs of nested segments are recomputed with the one around them.
      if (outermost) inputs_ += size_of_value(v);
    }
    if (outermost) std::fill(inside_.begin() + s.begin, inside_.begin() + s.end, true);
    keeps_ = keeps_ || !s.choice.keep.empty();
    for (const SegmentSpec& nested : s.nested) add(nested, false);
  }

  /// Anything that a layer of a segment made may be kept by a policy.
  std::int64_t kept() const {
    std::int64_t bytes = 0;
    for (const LayerValue& v : e_.plain.values) {
      if (keeps_ && counts(v) && inside(v)) bytes += v.bytes;
    }
    return bytes;
  }

  const Evidence& e_;
  std::vector<bool> inside_;
  std::int64_t inputs_ = 0;
  bool keeps_;
};

std::optional<Violation> check_saved_at_most(const Evidence& e) {
  const std::int64_t per_forward = Allowance(e).bytes();
  for (const ByteReading& r : e.checkpointed.bytes) {
    if (r.moment != Moment::after_forward) continue;
    const std::int64_t most = per_forward * graphs_after_forward(e.c.protocol, r.microbatch);
    // The source of the latest copy to the host may be there still.
    const std::int64_t got = std::max(r.saved, r.offloaded);
    if (got <= most) continue;
    return Violation{kSavedAtMost, place_of(r.step, r.microbatch) + ", after the forward",
                     "at most " + std::to_string(most) + " bytes saved", std::to_string(got)};
  }
  return std::nullopt;
}

// Casts that a policy keeps are not among what the plain run shows.
bool applies_saved_at_most(const Evidence& e) {
  if (may_keep_states(e) || saves_may_vary(e)) return false;
  return e.c.protocol.autocast == AutocastSpan::off || !Allowance(e).keeps();
}

}  // namespace

extern const Law saved_at_most_law;
const Law saved_at_most_law{
    .name = kSavedAtMost,
    .statement =
        "After a forward, no more bytes are saved than in the plain run, minus what the layers in "
        "segments save there, plus the segments' inputs and what a policy may keep.",
    .harm = "Checkpointing saves less memory than promised.",
    .promise = Promise::memory,
    .check = check_saved_at_most,
    .reads = {Observable::saved_bytes, Observable::saved_tensors},
    .applies = applies_saved_at_most};

}  // namespace rematch
