#include "properties/hunt/kills.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "properties/hunt/each_fault.h"
#include "properties/hunt/hunt.h"
#include "properties/subjects/engine_subject.h"

namespace rematch {
namespace {

/// The middle one, the smaller of two; 0 for none.
template <class Number>
Number median_of(std::vector<Number> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

template <class Number>
Number largest_of(const std::vector<Number>& values) {
  return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
}

std::vector<std::uint64_t> found(const Kill& kill) {
  std::vector<std::uint64_t> cases = kill.cases;
  std::erase(cases, 0);
  return cases;
}

HuntOptions hunt_for(const Fault& fault, const KillOptions& options, int seed) {
  HuntOptions hunt;
  hunt.mix = options.mix;
  hunt.seed = static_cast<std::uint64_t>(seed);
  hunt.cases = options.cases;
  hunt.stop = options.stop;
  hunt.make_subject = [&fault, &options] {
    return std::make_unique<EngineSubject>(fault.make, options.device);
  };
  return hunt;
}

Kill hunt_fault(const Fault& fault, const KillOptions& options) {
  Kill kill;
  kill.fault = &fault;
  for (int seed = 1; seed <= options.seeds && !stopped(options); ++seed) {
    const HuntResult result = hunt(hunt_for(fault, options, seed));
    kill.seconds += result.seconds;
    kill.cases.push_back(result.findings.empty() ? 0 : result.findings[0].index + 1);
    if (result.findings.empty()) continue;
    kill.layers.push_back(static_cast<int>(result.findings[0].smallest.layers.size()));
    ++kill.laws[result.findings[0].violation.law];
  }
  return kill;
}

LawsThatFind find_laws(const Fault& fault, const KillOptions& options) {
  HuntOptions o = hunt_for(fault, options, 1);
  o.keep_going = true;
  o.shrunk_per_law = 0;
  const HuntResult result = hunt(o);
  LawsThatFind row{&fault, {}};
  for (const VerdictCounts& counts : result.verdicts) {
    row.finds.push_back(counts[static_cast<std::size_t>(Verdict::violated)] > 0);
  }
  return row;
}

}  // namespace

int Kill::survived() const {
  return static_cast<int>(std::count(cases.begin(), cases.end(), std::uint64_t{0}));
}
std::uint64_t Kill::median_cases() const { return median_of(found(*this)); }
std::uint64_t Kill::worst_cases() const { return largest_of(found(*this)); }
int Kill::median_layers() const { return median_of(layers); }
int Kill::worst_layers() const { return largest_of(layers); }

std::vector<std::string_view> Kill::laws_by_frequency() const {
  std::vector<std::pair<int, std::string_view>> order;
  for (const auto& [law, count] : laws) order.emplace_back(-count, law);
  std::sort(order.begin(), order.end());
  std::vector<std::string_view> names;
  names.reserve(order.size());
  for (const auto& [count, law] : order) names.push_back(law);
  return names;
}

std::vector<Kill> hunt_faults(const std::vector<const Fault*>& faults, const KillOptions& options) {
  return for_each_fault<Kill>(faults, options, hunt_fault);
}

std::vector<LawsThatFind> laws_that_find(const std::vector<const Fault*>& faults,
                                         const KillOptions& options) {
  return for_each_fault<LawsThatFind>(faults, options, find_laws);
}

}  // namespace rematch
