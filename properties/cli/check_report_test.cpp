// The report of a check, in each of its three forms.
#include "properties/cli/check_report.h"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "properties/testing/shell.h"

namespace rematch::cli {
namespace {

using rematch::testing::contains;

constexpr std::uint64_t kCases = 2000;
constexpr std::uint64_t kStructures = 1900;

CheckReport report_of_hunt() {
  CheckReport report;
  report.subject = "pytorch";
  report.device = "cpu";
  report.mix = "wide";
  report.seed = 1;
  report.hunt.cases = kCases;
  report.cases_per_second = 0.43;
  report.hunt.seconds = 12;
  CheckReport::LawLine law{"outputs", true};
  law.hunted[0] = kCases;
  law.structures = kStructures;
  report.structures = kStructures;
  report.laws = {law};
  report.features = {{"dropout", 100, 0.02}, {"relu", 0, 0.5}};
  return report;
}

CheckReport::KnownLine known(const std::string& id, bool promised, std::uint64_t cases) {
  CheckReport::KnownLine line;
  line.entry.id = id;
  line.entry.promised = promised;
  line.cases = cases;
  if (cases > 0) line.again = "rematch replay --seed 1 --case 7";
  return line;
}

CheckReport report_of_known() {
  CheckReport report = report_of_hunt();
  report.known = {known("twice", true, 42), known("never", true, 0), known("limit", false, 204),
                  known("rare", false, 0)};
  report.bugs = {1, 42, 1};
  report.limits = {1, 204, 1};
  return report;
}

Report finding(const std::string& got) {
  Report report;
  report.violation = {"outputs", "step 0", "1.5", got};
  report.again = "rematch replay a.json";
  return report;
}

std::string last_line(const std::string& text) {
  const std::size_t at = text.rfind('\n', text.size() - 2);
  return text.substr(at + 1, text.size() - at - 2);
}

}  // namespace

TEST_CASE("the last line says that all laws are kept only where nothing differed") {
  CHECK(last_line(check_text(report_of_hunt(), false)) == "all laws kept");
  CHECK(last_line(check_text(report_of_known(), false)) ==
        "no new violation (1 known bug in 42 cases, 1 documented limit in 204 cases)");
  CHECK(report_of_known().status() == kHeld);

  CheckReport interrupted = report_of_hunt();
  interrupted.hunt.interrupted = true;
  CHECK(last_line(check_text(interrupted, false)) == "all laws kept so far");
  CHECK(interrupted.status() == kInterrupted);

  CheckReport broken = report_of_known();
  broken.reports = {finding("2"), finding("3")};
  CHECK(last_line(check_text(broken, false)) ==
        "2 new violations: outputs (1 known bug in 42 cases, 1 documented limit in 204 cases)");
  CHECK(broken.status() == kBroken);
}

TEST_CASE("a function that looks like one of autograd is told of the variant that it is") {
  CheckArguments a;
  CheckOutcome outcome;
  outcome.reports = {finding("requires no grad")};
  outcome.reports[0].violation.law = "requires-grad-map";
  const auto hinted = [&](const std::string& subject) {
    a.subject.name = subject;
    return contains(check_text(report_of(a, {}, outcome), false), "--variant reentrant");
  };
  CHECK(hinted("mine.py:f"));
  CHECK_FALSE(hinted("mine.py:f --variant reentrant"));
  CHECK_FALSE(hinted("pytorch"));
  outcome.reports[0].violation.got = "requires grad";
  CHECK_FALSE(hinted("mine.py:f"));
}

TEST_CASE("a law is called kept only where it judged enough structures") {
  CheckReport report = report_of_hunt();
  CHECK(contains(check_text(report, false),
                 "\n1,900 structures (distinct models, plans and modes)\n"));
  report.laws.push_back({"hooks", true});
  report.laws.back().hunted[0] = 60;
  report.laws.back().structures = 7;
  CHECK(contains(check_text(report, false), "; fewer than 100 for: hooks 7\n"));
  CHECK(last_line(check_text(report, false)) ==
        "no violation; 1 law judged fewer than 100 structures, too few to be called kept");
  const auto json = nlohmann::json::parse(check_json(report));
  CHECK(json["structures"] == kStructures);
  CHECK(json["structures_are_exact"] == true);
  CHECK(json["laws"]["hooks"]["structures"] == 7);
  report.structures_are_exact = false;
  CHECK(contains(check_text(report, false), "\nabout 1,900 structures"));
  // What was not asked for does not count, nor does what judged nothing.
  report.laws.back().chosen = false;
  CHECK(last_line(check_text(report, false)) == "all laws kept");
  report.laws.back() = {"hooks", true};
  CHECK(last_line(check_text(report, false)) == "all laws kept");
}

TEST_CASE("nothing is called kept where nothing was judged or something fell short") {
  CheckReport nothing = report_of_hunt();
  nothing.laws[0].hunted = {};
  CHECK_FALSE(contains(check_text(nothing, false), "all laws kept"));
  CheckReport fell_short = report_of_hunt();
  fell_short.hunt.shortfalls = {"feature relu occurred in 0.00 % of 2000 cases"};
  const std::string text = check_text(fell_short, false);
  CHECK_FALSE(contains(text, "all laws kept"));
  CHECK(contains(text, "SHORT feature relu"));
  // The table is what explains it.
  CHECK(contains(text, "50.0%"));
  CHECK(fell_short.status() == kBroken);
}

TEST_CASE("what did not occur is counted in one line, and listed on request") {
  const std::string text = check_text(report_of_known(), false);
  CHECK(contains(text,
                 "1 other known bug and 1 other documented limit did not occur in these cases "
                 "(--verbose lists them)\n"));
  CHECK_FALSE(contains(text, "never"));
  CHECK(contains(text, "1 of 2 features occurred in these cases"));
  CHECK_FALSE(contains(text, "50.0%"));
  const std::string verbose = check_text(report_of_known(), true);
  CHECK(contains(verbose, "never, rare"));
  CHECK(contains(verbose, "50.0%"));
}

TEST_CASE("each known bug has the command that opens it, and a slow hunt a rate") {
  const std::string text = check_text(report_of_known(), false);
  CHECK(contains(
      text,
      "Known bugs:\n  twice, 42 cases; not reported\n      rematch replay --seed 1 --case 7\n"));
  CHECK(contains(text, "Documented limits:\n  limit, 204 cases\n"));
  CHECK(contains(text, "12 s at 0.4 cases/s"));
}

TEST_CASE("a long message is cut in the report, and whole in JSON and JUnit") {
  std::string message = "RuntimeError: first";
  for (int i = 2; i <= 22; ++i) message += "\nline " + std::to_string(i);
  CheckReport report = report_of_hunt();
  report.reports = {finding(message)};
  const std::string text = findings_text(report);
  CHECK(contains(text, "got       RuntimeError: first\n            line 2\n"));
  CHECK(contains(text, "(18 further lines in full with replay)"));
  CHECK_FALSE(contains(text, "line 22"));
  CHECK(nlohmann::json::parse(check_json(report))["findings"][0]["got"] == message);
  CHECK(contains(check_junit(report), "line 22"));

  report.hunt.not_judged = 2;
  report.hunt.why_not_judged = {{message, 2}};
  const std::string skipped = check_text(report, false);
  CHECK(contains(skipped, "2  RuntimeError: first ..."));
  CHECK_FALSE(contains(skipped, "line 2"));
}

TEST_CASE("findings of saved cases count as checks though no random case was run") {
  CheckReport report = report_of_hunt();
  report.hunt.cases = 0;
  report.laws[0].hunted = {};
  report.laws[0].saved[0] = 11;
  report.laws[0].saved[1] = 1;
  report.saved.judged = 12;
  report.saved.seconds = 3;
  report.reports = {finding("2")};
  report.reports[0].saved_case = "old.json";
  const std::string text = check_text(report, false);
  CHECK(contains(text, "12 saved cases in 3.0 s; 12 checks of 1 law"));
  CHECK_FALSE(contains(text, "record hash"));
  CHECK_FALSE(contains(text, "cases/s"));
  CHECK(contains(findings_text(report), "found in: old.json\n"));
}

TEST_CASE("all three forms tell of the same findings and troubles") {
  CheckReport report = report_of_known();
  report.reports = {finding("2")};
  report.errors = {"a worker was lost"};
  const auto json = nlohmann::json::parse(check_json(report));
  CHECK(json["findings"].size() == 1);
  CHECK(json["errors"][0] == "a worker was lost");
  CHECK(json["known"].size() == 4);
  CHECK(json["known_bugs"]["cases"] == 42);
  CHECK(json["documented_limits"]["not_seen"] == 1);
  const std::string junit = check_junit(report);
  CHECK(contains(junit, "failures=\"2\""));
  CHECK(contains(junit, "a worker was lost"));
  CHECK(contains(findings_text(report), "VIOLATED outputs"));
}

TEST_CASE("one finding of two saved cases is reported once") {
  std::vector<Report> reports;
  Report first = finding("2");
  first.count = 3;
  add_report(first, reports);
  Report same = finding("4");
  same.smallest.seed = 99;
  add_report(same, reports);
  REQUIRE(reports.size() == 1);
  CHECK(reports[0].count == 4);
  Report other = finding("2");
  other.violation.law = "losses";
  add_report(other, reports);
  CHECK(reports.size() == 2);
}

}  // namespace rematch::cli
