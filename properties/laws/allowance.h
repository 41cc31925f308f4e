#pragma once

#include <cstdint>
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
  /// The most that is held beyond the plain run when the backward of `layer` begins: what segments
  /// before it drop counts as less, where `shown` says that the plain run shows who saves what.
  std::int64_t beyond_at(int layer, bool shown) const;
  /// Whether a policy keeps anything.
  bool keeps() const { return keeps_; }

 private:
  bool inside(const LayerValue& v) const;
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
