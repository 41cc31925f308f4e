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
  std::int64_t saved() const;
  /// Bytes that the plain run saves in its first forward.
  std::int64_t saved_plain() const;
  /// Bytes that are handed to segments, nested ones apart, whose inputs are recomputed.
  std::int64_t inputs() const { return inputs_; }
  /// Whether a policy keeps anything.
  bool keeps() const { return keeps_; }

 private:
  bool inside(const LayerValue& v) const;
  std::int64_t size_of_value(const ValueRef& v) const;
  std::int64_t kept() const;
  void add(const SegmentSpec& s, bool outermost);

  const Evidence& e_;
  std::vector<bool> inside_;
  std::int64_t inputs_ = 0;
  bool keeps_;
};

}  // namespace rematch
