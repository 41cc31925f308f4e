#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "engine/build/build_info.h"
#include "engine/cuda/runtime/device.h"
#include "properties/case/json.h"
#include "properties/cli/check_report.h"
#include "properties/cli/device_work.h"

namespace rematch::cli {
namespace {

using Json = nlohmann::ordered_json;

Json work_json(const CheckReport& r) {
  Json work;
  work["operations"] = per_case(r, operations_of(r.hunt.device_work));
  for (const auto& [kind, count] : r.hunt.device_work) work[kind] = per_case(r, count);
  return work;
}

Json json_of(const CheckReport::LawLine& law) {
  Json counts;
  for (std::size_t v = 0; v < kVerdictCount; ++v) {
    counts[std::string(to_string(static_cast<Verdict>(v)))] = law.hunted[v];
  }
  counts["structures"] = law.structures;
  return counts;
}

Json json_of(const CheckReport::KnownLine& known) {
  Json j{{"id", known.entry.id},
         {"cases", known.cases},
         {"promised", known.entry.promised},
         {"why", known.entry.why},
         {"reported", known.entry.reported},
         {"since", known.entry.since}};
  if (known.first_case) j["first_case"] = *known.first_case;
  if (known.smallest) j["case"] = Json::parse(to_json(*known.smallest));
  if (!known.again.empty()) j["again"] = known.again;
  return j;
}

Json json_of(const CheckReport::Seen& seen) {
  return {{"seen", seen.entries}, {"cases", seen.cases}, {"not_seen", seen.unseen}};
}

}  // namespace

std::string check_json(const CheckReport& r) {
  Json j;
  j["subject"] = r.subject;
  if (!r.hunt.versions.empty()) j["versions"] = r.hunt.versions;
  j["device"] = r.device;
  j["build"] = build_kind();
  j["mix"] = r.mix;
  j["seed"] = r.seed;
  j["saved_cases"] = r.saved.judged;
  if (r.saved.not_judged > 0) j["saved_not_judged"] = r.saved.not_judged;
  j["cases"] = r.hunt.cases;
  j["structures"] = r.structures;
  j["structures_are_exact"] = r.structures_are_exact;
  j["not_judged"] = r.hunt.not_judged;
  if (r.hunt.not_judged > 0) j["why_not_judged"] = r.hunt.why_not_judged;
  j["violating_cases"] = r.violating_cases;
  j["checks"] = r.checks();
  j["record_hash"] = fmt::format("{:016x}", r.hunt.record_hash);
  j["exact_hash"] = fmt::format("{:016x}", r.hunt.exact_hash);
  if (!r.hunt.device_work.empty()) {
    j["device_work_per_case"] = work_json(r);
    if (slow_convolutions(r.hunt.device_work) > 0) j["warnings"] = {cuda::kSlowConvolutionWarning};
  }
  j["laws"] = Json::object();
  for (const CheckReport::LawLine& law : r.laws) j["laws"][std::string(law.name)] = json_of(law);
  j["features"] = Json::object();
  for (const CheckReport::FeatureLine& f : r.features) {
    j["features"][std::string(f.name)] = {{"cases", f.cases}, {"floor", f.floor}};
  }
  j["known"] = Json::array();
  for (const CheckReport::KnownLine& known : r.known) j["known"].push_back(json_of(known));
  j["known_bugs"] = json_of(r.bugs);
  j["documented_limits"] = json_of(r.limits);
  j["findings"] = Json::array();
  for (const Report& report : r.reports) j["findings"].push_back(json_of(report));
  if (!r.hints.empty()) j["hints"] = r.hints;
  j["shortfalls"] = r.hunt.shortfalls;
  j["errors"] = r.errors;
  j["interrupted"] = r.hunt.interrupted;
  j["seconds"] = r.hunt.seconds;
  j["start_seconds"] = r.hunt.start_seconds;
  j["cases_per_second"] = r.cases_per_second;
  return j.dump(2) + "\n";
}

}  // namespace rematch::cli
