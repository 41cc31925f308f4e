#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/backend/device.h"
#include "properties/faults/fault.h"
#include "properties/generate/mix.h"

namespace rematch {

struct KillOptions {
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
struct Kill {
  const Fault* fault = nullptr;
  /// By hunt: how many cases it took; 0: the fault survived.
  std::vector<std::uint64_t> cases;
  /// By hunt that found it: layers of the shrunk case.
  std::vector<int> layers;
  /// How many hunts ended at each law.
  std::map<std::string_view, int> laws;
  double seconds = 0;

  int survived() const;
  std::uint64_t median_cases() const;
  std::uint64_t worst_cases() const;
  int median_layers() const;
  int worst_layers() const;
  /// The laws that hunts ended at, the most frequent first.
  std::vector<std::string_view> laws_by_frequency() const;
};

/// Hunts each of `faults`, which must run. One that `stop` interrupted is left out.
std::vector<Kill> hunt_faults(const std::vector<const Fault*>& faults, const KillOptions& options);

/// For each fault which laws any of `options.cases` cases of seed 1 violates, in the order of
/// laws(), whether others are violated before them or not. A case that ends in an error violates
/// the law about errors and no other.
struct LawsThatFind {
  const Fault* fault = nullptr;
  std::vector<bool> finds;
};
std::vector<LawsThatFind> laws_that_find(const std::vector<const Fault*>& faults,
                                         const KillOptions& options);

}  // namespace rematch
