#include "properties/hunt/fault_hunts.h"

#include "properties/hunt/each_fault.h"
#include "properties/hunt/hunt.h"
#include "properties/subjects/engine_subject.h"

namespace rematch {
namespace {

FaultHunts hunt_fault(const Fault& fault, const FaultHuntOptions& options) {
  FaultHunts hunts;
  hunts.fault = &fault;
  for (int seed = 1; seed <= options.seeds && !stopped(options); ++seed) {
    HuntOptions one;
    one.mix = options.mix;
    one.seed = static_cast<std::uint64_t>(seed);
    one.cases = options.cases;
    one.stop = options.stop;
    one.make_subject = [&] { return std::make_unique<EngineSubject>(fault.make, options.device); };
    const HuntResult result = hunt(one);
    ++hunts.hunts;
    if (result.findings.empty()) continue;
    const Finding& found = result.findings.front();
    hunts.cases.push_back(found.index + 1);
    hunts.layers.push_back(static_cast<int>(found.smallest.layers.size()));
    ++hunts.laws[found.violation.law];
  }
  return hunts;
}

}  // namespace

std::vector<std::string_view> FaultHunts::laws_by_frequency() const {
  std::vector<std::pair<int, std::string_view>> order;
  for (const auto& [law, count] : laws) order.emplace_back(-count, law);
  std::sort(order.begin(), order.end());
  std::vector<std::string_view> names;
  names.reserve(order.size());
  for (const auto& [count, law] : order) names.push_back(law);
  return names;
}

std::vector<FaultHunts> hunt_faults(const std::vector<const Fault*>& faults,
                                    const FaultHuntOptions& options) {
  return for_each_fault<FaultHunts>(faults, options, hunt_fault);
}

}  // namespace rematch
