#pragma once

// Where LaneSum (engine/cpu/reduce.h) puts each element, as arithmetic: a backend that gives every
// lane of every block a thread of its own adds in the same order and gets the same bits.
//
// The error of the order. In a block an element passes at most L - 1 additions of its lane, where L
// is the longest lane, and 4 of the tree, each rounding in T; then one addition a block in double;
// then the rounding to T. With u_T and u_64 the unit roundoffs (2^-24 and 2^-53), n elements, and
// B = ceil(n / 1024) blocks, the sum differs from the exact one by at most
//     ((L + 4) u_T + B u_64) * sum |x|
// to first order (Higham, Accuracy and Stability of Numerical Algorithms, 4.2); the L + 4 holds the
// final rounding. One run has L = 64; runs of s elements have L <= 1024 / s + 66.

#include <cstdint>

#include "engine/math/host_device.h"

namespace rematch::math {

inline constexpr std::int64_t kSumLanes = 16;
inline constexpr std::int64_t kSumBlock = 1024;

REMATCH_HD constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

/// sum + value(begin + lane) + value(begin + lane + 16) + ... below `end`.
template <typename T, typename Value>
REMATCH_HD inline T lane_chain(T sum, std::int64_t begin, std::int64_t end, std::int64_t lane,
                               const Value& value) {
  REMATCH_UNROLL
  for (std::int64_t i = begin + lane; i < end; i += kSumLanes) sum += value(i);
  return sum;
}

/// What `lane` holds at the end of block `block` of a LaneSum over `total` elements in runs of
/// `run` (>= 1) elements each; value(r, i) is element i of run r.
template <typename T, typename Value>
REMATCH_HD inline T lane_of_block(std::int64_t total, std::int64_t run, std::int64_t block,
                                  std::int64_t lane, const Value& value) {
  T sum{};
  const std::int64_t first = block * kSumBlock;
  const std::int64_t left = total - first;
  std::int64_t rest = left < kSumBlock ? left : kSumBlock;
  std::int64_t r = first / run;
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
/// double where said so) within a chunk, then the chunks' sums in ascending order in double: with n
/// rows the error is at most (min(n, 128) u_T + ceil(n / 128) u_64) * sum |x| to first order, and
/// up to 128 rows the order is the plain ascending one.
inline constexpr std::int64_t kChunkRows = 128;

}  // namespace rematch::math
