#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <string_view>
#include <vector>

#include "engine/backend/device.h"
#include "properties/faults/fault.h"
#include "properties/generate/mix.h"

namespace rematch {

struct FaultHuntOptions {
  Mix mix = Mix::wide;
  Device device = Device::cpu;
  /// One hunt for each: seeds 1, 2, ...
  int seeds = 20;
  /// A fault that a hunt of so many cases does not find has survived it.
  std::uint64_t cases = 5000;
  /// Faults are hunted side by side, on so many threads. Results do not depend on it.
  int jobs = 1;
  const std::atomic<bool>* stop = nullptr;
  /// Called about ten times a second with the number of faults that are done, from the caller's
  /// thread.
  std::function<void(std::size_t done)> progress;
};

/// The outcome of the hunts for one fault.
struct FaultHunts {
  const Fault* fault = nullptr;
  int hunts = 0;
  /// By hunt that found it: how many cases it took, and the layers of the shrunk case.
  std::vector<std::uint64_t> cases;
  std::vector<int> layers;
  /// How many hunts ended at each law.
  std::map<std::string_view, int> laws;

  int survived() const { return hunts - static_cast<int>(cases.size()); }
  /// The laws that hunts ended at, the most frequent first.
  std::vector<std::string_view> laws_by_frequency() const;
};

/// The middle one, the smaller of two; 0 for none.
template <class Number>
Number median_of(std::vector<Number> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// 0 for none.
template <class Number>
Number largest_of(const std::vector<Number>& values) {
  return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
}

/// Hunts each of `faults`, which must run. One that `stop` interrupted is left out.
std::vector<FaultHunts> hunt_faults(const std::vector<const Fault*>& faults,
                                    const FaultHuntOptions& options);

}  // namespace rematch
