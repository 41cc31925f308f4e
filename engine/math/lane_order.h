#pragma once

// Where LaneSum (engine/cpu/reduce.h) puts each element, as arithmetic: a backend that gives every
// lane of every block a thread of its own adds in the same order and gets the same bits.
//
// The error of the order. In a block an element passes at most L - 1 additions of its lane, where L
// is the longest lane, and 4 of the tree, each rounding in T; then at most G = min(B, 256) +
// ceil(B / 256) additions of blocks and groups in double (GroupedSum), with B = ceil(n / 1024)
// blocks of n elements; then the rounding to T. With u_T and u_64 the unit roundoffs (2^-24 and
// 2^-53) the sum differs from the exact one by at most
//     ((L + 4) u_T + G u_64) * sum |x|
// to first order (Higham, Accuracy and Stability of Numerical Algorithms, 4.2); the L + 4 holds the
// final rounding. One run has L = 64; runs of s elements have L <= 1024 / s + 66. L + 4 + G is also
// the longest chain of additions that wait for each other.

#include <cstdint>

#include "engine/math/host_device.h"

namespace rematch::math {

inline constexpr std::int64_t kSumLanes = 16;
inline constexpr std::int64_t kSumBlock = 1024;

REMATCH_HD constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

/// a / b of numbers that are not negative. Most fit in 32 bits, where a device divides many times
/// faster.
REMATCH_HD constexpr std::int64_t quotient(std::int64_t a, std::int64_t b) {
  if (((a | b) >> 32) != 0) return a / b;
  return static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b);
}

/// Terms of a GroupedSum that are added one after the other.
inline constexpr std::int64_t kSumGroup = 256;

/// Adds what blocks and chunks sum up to, in V, which is double or several: in ascending order
/// within a group of kSumGroup, then the groups. Up to that many, the plain ascending order; beyond
/// it, groups can be added side by side.
template <typename V>
class GroupedSum {
 public:
  REMATCH_HD void add(const V& term) {
    group_ += term;
    if (++used_ < kSumGroup) return;
    groups_ += group_;
    group_ = V{};
    used_ = 0;
  }
  [[nodiscard]] REMATCH_HD V total() const {
    V sum = groups_;
    sum += group_;
    return sum;
  }

 private:
  V groups_{};
  V group_{};
  std::int64_t used_ = 0;
};

/// sum + value(begin + lane) + value(begin + lane + 16) + ... below `end`.
template <typename T, typename Value>
REMATCH_HD inline T lane_chain(T sum, std::int64_t begin, std::int64_t end, std::int64_t lane,
                               const Value& value) {
  REMATCH_UNROLL
  for (std::int64_t i = begin + lane; i < end; i += kSumLanes) sum += value(i);
  return sum;
}

/// The sum in `lane` at the end of block `block` of a LaneSum over `total` elements in runs of
/// `run` (>= 1) elements each; value(r, i) is element i of run r.
template <typename T, typename Value>
REMATCH_HD inline T lane_of_block(std::int64_t total, std::int64_t run, std::int64_t block,
                                  std::int64_t lane, const Value& value) {
  T sum{};
  const std::int64_t first = block * kSumBlock;
  const std::int64_t left = total - first;
  std::int64_t rest = left < kSumBlock ? left : kSumBlock;
  std::int64_t r = quotient(first, run);
  std::int64_t i = first - r * run;
  while (rest > 0) {
    const std::int64_t count = run - i < rest ? run - i : rest;
    sum = lane_chain(sum, i, i + count, lane, [&](std::int64_t at) { return value(r, at); });
    rest -= count;
    i = 0;
    ++r;
  }
  return sum;
}

/// Rows that a column sum adds up at a time. Sums down columns add rows in ascending order in T (in
/// double where said so) within a chunk, then the chunks' sums as a GroupedSum: with n rows, and G
/// as above for C = ceil(n / 128) chunks, the error is at most (min(n, 128) u_T + G u_64) * sum |x|
/// to first order, and up to 128 rows the order is the plain ascending one.
inline constexpr std::int64_t kChunkRows = 128;

}  // namespace rematch::math
