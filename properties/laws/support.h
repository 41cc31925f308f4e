#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "properties/laws/law.h"

namespace rematch {

/// "step 0, microbatch 1".
std::string place_of(int step, int microbatch);
/// "layer 3 (linear)"; "layer 99 (none)" where there is no such layer.
std::string layer_name(const Case& c, int layer);
/// "step 0, microbatch 1, layer 3 (linear)".
std::string place_of(const Case& c, int step, int microbatch, int layer);
/// "parameter 2 (layer 3 linear weight)".
std::string parameter_name(const Case& c, const Geometry& geometry, int parameter);

/// "gradient of parameter 2 (layer 3 linear weight)".
std::string value_name(const Evidence& e, Quantity quantity, int index);
/// "gradient of the model input", of the first one.
std::string input_gradient_name(int input);

/// Judges all observations of one quantity that the protocol implies: each must be in both
/// records, with equal dtype, shape and bits. Skips gradients that are absent in one record
/// (absent-gradients judges them), and values that the forecast calls inexact.
std::optional<Violation> compare_values(const Evidence& e, Quantity quantity, std::string_view law);

/// Judges the random streams at one moment: both records must contain the same readings.
std::optional<Violation> compare_streams(const Evidence& e, Moment moment, std::string_view law);

/// False once values of this forward may legitimately differ because an earlier recomputation drew
/// without its random state.
bool comparable_forward(const Evidence& e, int step, int microbatch);

/// Forwards of one step whose graphs hold memory right after forward `microbatch`, and those still
/// waiting for their backward right after backward `microbatch`.
inline int graphs_after_forward(const ProtocolSpec& p, int microbatch) {
  return p.forwards_first ? microbatch + 1 : 1;
}
inline int graphs_after_backward(const ProtocolSpec& p, int microbatch) {
  return p.forwards_first ? microbatch : 0;
}

/// Searches a list whose entries are requested roughly in their order: each search starts where the
/// last one ended.
template <class Entry>
class Finder {
 public:
  explicit Finder(const std::vector<Entry>& entries) : entries_(entries) {}

  template <class Matches>
  const Entry* find(Matches matches) {
    for (std::size_t seen = 0; seen < entries_.size(); ++seen) {
      if (next_ >= entries_.size()) next_ = 0;
      const Entry& entry = entries_[next_++];
      if (matches(entry)) return &entry;
    }
    return nullptr;
  }

 private:
  const std::vector<Entry>& entries_;
  std::size_t next_ = 0;
};

/// Violation::distance of two arrays of one shape.
double distance(std::span<const double> expected, std::span<const double> got);

inline constexpr std::string_view kNotRecorded = "not recorded";

/// Bytes that one forward saves: those of the forecast, whose facts know nothing of the loss where
/// they were measured in the plain run. Then the first forward of `plain` says what it saves, and
/// the forecast what the plan makes of that.
std::int64_t saved_per_forward(const Evidence& e, std::int64_t forecast);
/// Whether the forecast knows what is saved. It does not know what a policy keeps of an
/// implementation whose facts were measured: that need not be what its layers save. Nor is what
/// becomes of tensors in a structure: an implementation may hold the structure and save none of
/// them; or of forwards that save different amounts.
bool knows_saved_bytes(const Evidence& e);
/// Whether a segment is handed tensors among other things: they are kept, but not as saved tensors.
bool hides_inputs(const std::vector<SegmentSpec>& segments);
/// Whether regions of an implementation whose facts were measured may keep what layers read of
/// their states, which the plain run does not show.
bool may_keep_states(const Evidence& e);

/// Whether forwards of such an implementation may save different amounts, of which the first of the
/// plain run shows one.
bool saves_may_vary(const Evidence& e);
/// Whether a recomputation may save other amounts than its forward did: a draw or values of a layer
/// decide how much, and they were others.
bool resaves_may_vary(const Evidence& e);
/// Whether the plain run shows what each layer saves, in every forward.
bool shows_saved(const Evidence& e);

/// Calls check(step, microbatch) for every forward of the protocol, up to the first violation.
template <class Check>
std::optional<Violation> for_each_forward(const ProtocolSpec& p, Check check) {
  for (int step = 0; step < p.steps; ++step) {
    for (int microbatch = 0; microbatch < p.microbatches; ++microbatch) {
      if (std::optional<Violation> violation = check(step, microbatch)) return violation;
    }
  }
  return std::nullopt;
}

}  // namespace rematch
