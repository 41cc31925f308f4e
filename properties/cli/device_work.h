#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "properties/cli/check_report.h"

namespace rematch::cli {

inline constexpr std::string_view kSlowConvolutions = "slow_convolutions";

/// The number of convolutions that ran on slow kernels.
inline std::int64_t slow_convolutions(const DeviceWork& work) {
  const auto at = work.find(std::string(kSlowConvolutions));
  return at == work.end() ? 0 : at->second;
}

/// Tells operations from other kinds of a device's work.
inline bool is_operation(std::string_view kind) {
  return kind != "waits" && kind != kSlowConvolutions;
}

inline std::int64_t operations_of(const DeviceWork& work) {
  std::int64_t sum = 0;
  for (const auto& [kind, count] : work) sum += is_operation(kind) ? count : 0;
  return sum;
}

inline double per_case(const CheckReport& r, std::int64_t count) {
  return static_cast<double>(count) / static_cast<double>(std::max<std::uint64_t>(r.hunt.cases, 1));
}

}  // namespace rematch::cli
