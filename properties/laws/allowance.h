#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "properties/laws/law.h"

namespace rematch {

/// Bytes that a plan may hold, from what the plain run shows. The evidence must outlive it.
class Allowance {
 public:
  explicit Allowance(const Evidence& e);

  /// The most that may be saved after one forward. Needs saved_tensors.
  /// `outputs_held`: the run has all outputs of the model, whichever losses read.
  std::int64_t saved(bool outputs_held = false) const;
  /// Bytes that the plain run saves in its first forward.
  std::int64_t saved_plain() const;
  /// Bytes that are handed to segments, nested ones apart, whose inputs are recomputed.
  std::int64_t inputs() const { return inputs_; }
  /// The most that one forward saves beyond the plain run if its segments drop nothing.
  std::int64_t undropped() const { return inputs_ + kept(); }
  /// The most that is held beyond the plain run when the backward of `layer` begins: what segments
  /// before it drop counts as less, where `shown` says that the plain run shows who saves what.
  std::int64_t beyond_at(int layer, bool shown) const;
  /// The same if segments drop nothing, and have it until their graph is gone.
  std::int64_t undropped_at(int layer) const;
  /// Whether a policy keeps anything.
  bool keeps() const { return keeps_; }

 private:
  bool inside(const LayerValue& v) const;
  /// The outermost segment that has the layer; nullptr: none.
  const SegmentSpec* segment_around(int layer) const;
  /// Memory, and bytes in memory without a name, that layers outside of segments may save if other
  /// operands require grad than in the plain run: their operands, and all that they make.
  struct Unknown {
    std::map<std::uint64_t, std::int64_t> memory;
    std::int64_t unnamed = 0;
  };
  Unknown unknown_saves() const;
  /// The plain run's entry for a value, if the layer made it.
  const LayerValue* made(const ValueRef& v) const;
  /// Whether the plain run differentiates all layers of the segment.
  bool differentiated(const SegmentSpec& s) const;
  std::int64_t handed_to(const SegmentSpec& s) const;
  /// Bytes that are there while a recomputed segment is differentiated, beside what it saves.
  std::int64_t around(const SegmentSpec& s) const;
  std::int64_t size_of_value(const ValueRef& v) const;
  std::int64_t kept() const;
  void add(const SegmentSpec& s);

  const Evidence& e_;
  std::vector<SegmentSpec> segments_;
  std::vector<bool> inside_;
  /// Layers whose backward begins, in the plain run.
  std::vector<bool> differentiated_;
  std::int64_t inputs_ = 0;
  bool keeps_;
};

}  // namespace rematch
