#pragma once

#include <cstdint>

#include "engine/cpu/reduce.h"

namespace rematch::cpu {

/// out(channel, sum over n and s of value(element index, sample, channel)) for channels
/// [begin, end) of an array [n,c,s]. With s = 1 a channel's values are added down the column, in
/// double, else as a LaneSum with one run per sample.
template <typename T, typename Value, typename Out>
void channel_sums(std::int64_t n, std::int64_t c, std::int64_t s, std::int64_t begin,
                  std::int64_t end, const Value& value, const Out& out) {
  if (s == 1) {
    return column_sums<double>(
        n, end - begin,
        [=, &value](std::int64_t i, std::int64_t j) {
          return static_cast<double>(value(i * c + begin + j, i, begin + j));
        },
        [=, &out](std::int64_t j, double total) { out(begin + j, total); });
  }
  for (std::int64_t j = begin; j < end; ++j) {
    LaneSum<T> sum;
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t base = (i * c + j) * s;
      sum.add(s, [=, &value](std::int64_t k) { return value(base + k, i, j); });
    }
    out(j, sum.total());
  }
}

}  // namespace rematch::cpu
