#include "properties/hunt/hunt_result.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "properties/hunt/findings.h"

namespace rematch {
namespace {

bool judged_anything(const Tally& tally, const LawSet& by) {
  for (std::size_t i = 0; i < tally.verdicts.size(); ++i) {
    if (by[i] && judged_of(tally.verdicts[i]) > 0) return true;
  }
  return false;
}

/// `scope`: what the subject implements.
std::vector<std::string> shortfalls_of(const HuntSpec& spec, const Tally& tally,
                                       const Scope& scope) {
  std::vector<std::string> shortfalls;
  if (tally.cases == 0) {
    shortfalls.emplace_back("no case was run, so nothing was checked");
    return shortfalls;
  }
  if (tally.violating.empty() && !judged_anything(tally, spec.laws)) {
    shortfalls.emplace_back(
        "none of the laws had anything to judge, so nothing was checked (n/a: no case has anything "
        "to judge; not observed: the subject does not record what the law reads)");
    return shortfalls;
  }
  if (tally.cases < spec.floors_from || !tally.violating.empty()) return shortfalls;
  scope.features.for_each([&](Feature feature) {
    const double least = floor(spec.mix, feature, scope);
    const auto found = static_cast<double>(tally.features[static_cast<std::size_t>(feature)]);
    const auto cases = static_cast<double>(tally.cases - tally.not_judged);
    const double share = found / cases;
    // Five standard deviations below the floor: chance alone does not come so far. Cases of one
    // shape have most features together; for those of the training steps this is too lenient.
    const double expected = least * cases;
    const auto together = static_cast<double>(scope.cases_per_shape);
    if (found >= expected - 5 * std::sqrt(expected * together)) return;
    shortfalls.push_back(fmt::format(
        "feature {} occurred in {:.2f} % of {} cases, and the floor of the {} mix is {:.2f} %",
        to_string(feature), 100 * share, tally.cases, to_string(spec.mix), 100 * least));
  });
  return shortfalls;
}

}  // namespace

HuntResult result_of(const HuntSpec& spec, const Tally& total, const Scope& scope,
                     const Versions& versions) {
  HuntResult result;
  static_cast<Tally&>(result) = total;
  result.versions = versions;
  result.shortfalls = shortfalls_of(spec, total, scope);
  return result;
}

void shrink_into(HuntResult& result, const HuntOptions& options,
                 std::vector<ViolatingCase> to_shrink,
                 const std::function<void(std::size_t, std::size_t)>& report) {
  if (options.keep_going) {
    to_shrink.insert(to_shrink.end(), result.known_cases.begin(), result.known_cases.end());
  } else {
    for (const ViolatingCase& v : result.known_cases) {
      result.known_findings.push_back(
          {v.violation, v.index, v.c, v.c, result.known_of(*v.known), v.known});
    }
  }
  if (to_shrink.empty()) return;
  report(0, to_shrink.size());
  std::vector<Finding> found = shrink_all(
      options, to_shrink, [&](std::size_t done) { report(done, to_shrink.size()); }, result.error);
  std::move(found.begin(), found.end(), std::back_inserter(result.findings));
  const auto known = std::stable_partition(result.findings.begin(), result.findings.end(),
                                           [](const Finding& f) { return !f.known; });
  for (auto f = known; f != result.findings.end(); ++f) {
    f->count = result.known_of(*f->known);
    result.known_findings.push_back(std::move(*f));
  }
  result.findings.erase(known, result.findings.end());
  result.interrupted = result.interrupted || options.stopped();
}

}  // namespace rematch
