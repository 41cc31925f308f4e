#include "properties/hunt/tally.h"

#include <numeric>
#include <utility>

namespace rematch {

Tally::Tally() : verdicts(laws().size()), first_violated(laws().size()) {}

std::uint64_t Tally::violations() const {
  return std::accumulate(first_violated.begin(), first_violated.end(), std::uint64_t{0});
}

std::uint64_t Tally::known_of(std::size_t entry) const {
  const auto found = known.find(entry);
  return found == known.end() ? 0 : found->second;
}

void Tally::add(Tally next, std::size_t kept_per_law) {
  cases += next.cases;
  not_judged += next.not_judged;
  for (const auto& [reason, count] : next.why_not_judged) why_not_judged[reason] += count;
  structures.add(next.structures);
  record_hash += next.record_hash;
  exact_hash += next.exact_hash;
  for (const auto& [kind, work] : next.device_work) device_work[kind] += work;
  for (std::size_t i = 0; i < features.size(); ++i) features[i] += next.features[i];
  for (std::size_t i = 0; i < verdicts.size(); ++i) {
    for (std::size_t v = 0; v < kVerdictCount; ++v) verdicts[i][v] += next.verdicts[i][v];
  }
  for (ViolatingCase& found : next.known_cases) {
    if (known[*found.known] == 0) known_cases.push_back(std::move(found));
  }
  for (const auto& [entry, count] : next.known) known[entry] += count;
  cases_with_bug += next.cases_with_bug;
  cases_with_limit += next.cases_with_limit;
  needed.merge(next.needed);
  for (const auto& [by, count] : next.violated) violated[by] += count;
  std::vector<std::uint64_t> kept(laws().size());
  for (const ViolatingCase& v : violating) ++kept[index_of(*find_law(v.violation.law))];
  for (ViolatingCase& found : next.violating) {
    const std::size_t law = index_of(*find_law(found.violation.law));
    if (kept[law]++ < kept_per_law) violating.push_back(std::move(found));
  }
  for (std::size_t i = 0; i < first_violated.size(); ++i) {
    first_violated[i] += next.first_violated[i];
  }
}

}  // namespace rematch
