#include "golden/semantics/testing/rules.h"

#include "golden/semantics/testing/deviations.h"

namespace rematch::golden {

using nlohmann::json;

namespace {

std::vector<RuleTest>& tests() {
  static std::vector<RuleTest> all;
  return all;
}

void compare_fact(std::vector<std::string>& lines, const Probe& probe, const std::string& fact,
                  const json& theirs, const json& seen) {
  const std::string place = probe.id + ": " + fact;
  const std::string got = seen.contains(fact) ? seen.at(fact).dump() : "nothing";
  const Deviation* known = deviation(probe.id, fact);
  if (known == nullptr) {
    if (!seen.contains(fact) || seen.at(fact) != theirs) {
      lines.push_back(place + ": PyTorch " + theirs.dump() + ", the engine " + got);
    }
    return;
  }
  if (theirs != known->theirs) {
    lines.push_back(place + ": PyTorch " + theirs.dump() + ", the table of deviations says " +
                    known->theirs.dump());
  }
  const bool as_expected =
      known->ours ? seen.contains(fact) && seen.at(fact) == *known->ours : !seen.contains(fact);
  if (!as_expected) {
    lines.push_back(place + ": the engine " + got + ", the table of deviations says " +
                    (known->ours ? known->ours->dump() : "nothing"));
  }
}

}  // namespace

std::vector<std::string> mismatches(const Probe& probe, const json& seen) {
  std::vector<std::string> lines;
  if (deviation(probe.id, "") != nullptr) {
    if (!seen.empty()) lines.push_back(probe.id + ": the engine has a counterpart");
    return lines;
  }
  for (const auto& [fact, theirs] : probe.seen.items()) {
    compare_fact(lines, probe, fact, theirs, seen);
  }
  for (const auto& [fact, ours] : seen.items()) {
    if (!probe.seen.contains(fact)) {
      lines.push_back(probe.id + ": " + fact + ": the engine " + ours.dump() +
                      ", the record does not say");
    }
  }
  for (const Deviation& known : deviations()) {
    if (known.id == probe.id && !probe.seen.contains(known.fact)) {
      lines.push_back(probe.id + ": " + known.fact +
                      ": in the table of deviations, not in the record");
    }
  }
  return lines;
}

void Findings::add(const std::string& id, json seen) { all_.emplace_back(id, std::move(seen)); }

void Findings::check() const {
  for (const auto& [id, facts] : all_) {
    const Probe* probe = semantics_record().find(id);
    if (probe == nullptr) {
      FAIL_CHECK("the record has no probe " << id);
      continue;
    }
    for (const std::string& line : mismatches(*probe, facts)) FAIL_CHECK(line);
  }
  CHECK_FALSE(all_.empty());
}

const std::vector<RuleTest>& rule_tests() { return tests(); }

bool add_rule_test(RuleTest test) {
  tests().push_back(std::move(test));
  return true;
}

}  // namespace rematch::golden
