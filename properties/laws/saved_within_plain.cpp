#include <algorithm>
#include <string>
#include <vector>

#include "properties/laws/allowance.h"
#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kSavedWithinPlain = "saved-within-plain";

std::optional<Violation> check_saved_within_plain(const Evidence& e) {
  const std::int64_t inputs = Allowance(e).inputs();
  const auto after_forward = [](const std::vector<ByteReading>& readings, int step,
                                int microbatch) {
    return std::find_if(readings.begin(), readings.end(), [&](const ByteReading& r) {
      return r.moment == Moment::after_forward && r.step == step && r.microbatch == microbatch;
    });
  };
  return for_each_forward(e.c.protocol, [&](int step, int microbatch) -> std::optional<Violation> {
    const auto plain = after_forward(e.plain.bytes, step, microbatch);
    const auto got = after_forward(e.checkpointed.bytes, step, microbatch);
    if (plain == e.plain.bytes.end() || got == e.checkpointed.bytes.end()) {
      return Violation{kSavedWithinPlain, place_of(step, microbatch) + ", after the forward",
                       "bytes saved in both runs", std::string(kNotRecorded)};
    }
    const std::int64_t most =
        plain->saved + graphs_after_forward(e.c.protocol, microbatch) * inputs;
    const std::int64_t bytes = std::max(got->saved, got->offloaded);
    if (bytes <= most) return std::nullopt;
    return Violation{kSavedWithinPlain, place_of(step, microbatch) + ", after the forward",
                     "at most " + std::to_string(most) + " bytes saved", std::to_string(bytes)};
  });
}

/// Whether operands of a layer outside of segments require grad although they do not in the plain
/// run, because a reentrant segment before it marks its outputs: then it may save more than in the
/// plain run.
bool saves_anew(const Evidence& e) {
  std::vector<bool> anew = e.forecast.records_otherwise;
  for (const SegmentSpec& s : segments_of(e.c)) {
    std::fill(anew.begin() + s.begin, anew.begin() + s.end, false);
  }
  return std::find(anew.begin(), anew.end(), true) != anew.end();
}

// The plain run does not bound what policies keep beside the inputs, nor copies on the host, of
// which a tensor that is saved twice has two, nor states as a segment found them.
bool applies_saved_within_plain(const Evidence& e) {
  const auto reads_state = [](const LayerSpec& l) { return layer_of(l).reads_state; };
  return !e.c.plan.offload && !Allowance(e).keeps() &&
         std::none_of(e.c.layers.begin(), e.c.layers.end(), reads_state) && !saves_anew(e);
}

}  // namespace

extern const Law saved_within_plain_law;
const Law saved_within_plain_law{
    .name = kSavedWithinPlain,
    .statement =
        "After a forward, no more bytes are saved than in the plain run, plus the inputs of the "
        "segments.",
    .harm = "Checkpointing costs memory instead of saving it.",
    .topic = Topic::memory,
    .check = check_saved_within_plain,
    .reads = {Observable::saved_bytes},
    .applies = applies_saved_within_plain};

}  // namespace rematch
