// The record of how PyTorch checkpoints, the tests of its rules, and the tables between them.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <map>
#include <set>
#include <sstream>

#include "golden/semantics/testing/deviations.h"
#include "golden/semantics/testing/error_kinds.h"
#include "golden/semantics/testing/rules.h"

namespace rematch::golden {
namespace {

using Catch::Matchers::ContainsSubstring;
using nlohmann::json;
using testing::LedgerScope;

/// What all tests of rules saw, by id.
const std::map<std::string, json>& everything_seen() {
  static const std::map<std::string, json> all = [] {
    std::map<std::string, json> seen;
    for (const RuleTest& test : rule_tests()) {
      const LedgerScope fresh;
      Findings findings;
      test.run(findings);
      for (const auto& [id, facts] : findings.all()) {
        INFO(test.sentence << " tries " << id);
        CHECK(id.starts_with(test.rule + "."));
        CHECK(seen.emplace(id, facts).second);
      }
    }
    return seen;
  }();
  return all;
}

/// Probes that no test tries; the table of deviations has all their facts.
std::set<std::string> left_out() {
  std::set<std::string> ids;
  for (const Deviation& known : deviations()) {
    if (everything_seen().count(known.id) == 0) ids.insert(known.id);
  }
  return ids;
}

/// Whether anything notices that the record says `facts` of `probe`.
bool noticed(const Probe& probe, const json& facts) {
  const auto seen = everything_seen().find(probe.id);
  const json ours = seen != everything_seen().end() ? seen->second : json::object();
  return !mismatches({probe.id, probe.rule, facts}, ours).empty();
}

std::string read(const char* path) {
  std::ifstream file(std::string(REMATCH_SOURCE_DIR "/") + path);
  REQUIRE(file);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// golden/semantics/RULES.md, as the record, the tests of rules and the table of deviations say.
std::string rules_page() {
  std::map<std::string, std::vector<std::string>> tests;
  for (const RuleTest& test : rule_tests()) tests[test.rule].push_back(test.sentence);
  std::map<std::string, std::vector<std::string>> left;
  std::map<std::string, int> probes;
  std::vector<std::string> order;
  for (const Probe& probe : semantics_record().probes) {
    if (probes[probe.rule]++ == 0) order.push_back(probe.rule);
    const Deviation* whole = deviation(probe.id, "");
    if (whole != nullptr) left[probe.rule].push_back("`" + probe.id + "`: " + whole->why);
  }
  std::ostringstream page;
  page
      << "# Rules of checkpointing\n\nWhat PyTorch " << semantics_record().torch
      << " does, and the engine with it. `golden_tests` writes this page from the record of PyTorch"
         ",\nthe tests of rules and the table of deviations: see "
         "[golden](../README.md#what-pytorchs-checkpointing-does)."
         "\n\n| rule | states | probes | tests of the engine | not in the engine |\n"
         "|---|---|---|---|---|\n";
  for (const std::string& rule : order) {
    page << "| " << rule << " | " << semantics_record().rules.at(rule) << " | " << probes.at(rule)
         << " | " << fmt::format("{}", fmt::join(tests[rule], "; ")) << " | "
         << fmt::format("{}", fmt::join(left[rule], "; ")) << " |\n";
  }
  page << "\n## Promises that PyTorch breaks\n\n| probe | promised | seen |\n|---|---|---|\n";
  for (const Probe& probe : semantics_record().probes) {
    for (const auto& [fact, value] : probe.promised.items()) {
      page << "| " << probe.id << " | " << fact << ": " << value.dump() << " | "
           << probe.seen.at(fact).dump() << " |\n";
    }
  }
  return page.str();
}

TEST_CASE("each probe of the record is tried by a test or left out, and no other is") {
  std::set<std::string> known = left_out();
  for (const auto& [id, facts] : everything_seen()) known.insert(id);
  std::set<std::string> recorded;
  for (const Probe& probe : semantics_record().probes) recorded.insert(probe.id);
  for (const std::string& id : recorded) {
    INFO(id);
    CHECK(known.count(id) == 1);
  }
  for (const std::string& id : known) {
    INFO(id);
    CHECK(recorded.count(id) == 1);
  }
}

TEST_CASE("each deviation stands once, says why, and is one") {
  std::set<std::pair<std::string, std::string>> once;
  for (const Deviation& known : deviations()) {
    INFO(known.id << " " << known.fact);
    CHECK(once.emplace(known.id, known.fact).second);
    CHECK((known.fact.empty() || deviation(known.id, "") == nullptr));
    CHECK_FALSE(known.why.empty());
    CHECK((!known.ours || *known.ours != known.theirs));
  }
}

TEST_CASE("a change of any fact in the record is noticed") {
  for (const Probe& probe : semantics_record().probes) {
    INFO(probe.id);
    CHECK_FALSE(noticed(probe, probe.seen));
    // What the engine has no counterpart of is compared with PyTorch alone.
    if (deviation(probe.id, "") != nullptr) continue;
    json more = probe.seen;
    more["a fact more"] = 1;
    CHECK(noticed(probe, more));
    for (const auto& [fact, value] : probe.seen.items()) {
      INFO(fact);
      json without = probe.seen;
      without.erase(fact);
      CHECK(noticed(probe, without));
      for (const json& other : {json("doctored"), json(), json(-1)}) {
        json doctored = probe.seen;
        doctored[fact] = other;
        CHECK(noticed(probe, doctored));
      }
    }
  }
}

TEST_CASE("what PyTorch says of each kind of error is what the table of kinds says") {
  std::set<std::string> theirs;
  std::set<std::string_view> categories;
  for (const ErrorKind& kind : error_kinds()) {
    INFO(kind.category);
    CHECK(categories.insert(kind.category).second);
    CHECK(kind.their_class.empty() == kind.they_say.empty());
    CHECK(kind.our_class.empty() == kind.we_say.empty());
    if (kind.they_say.empty()) continue;
    theirs.emplace(kind.category);
    REQUIRE(semantics_record().errors.contains(std::string(kind.category)));
    const json& recorded = semantics_record().errors.at(std::string(kind.category));
    CHECK(recorded == json{{"class", kind.their_class}, {"says", kind.they_say}});
  }
  std::set<std::string> recorded;
  for (const auto& [category, text] : semantics_record().errors.items()) recorded.insert(category);
  CHECK(theirs == recorded);
}

TEST_CASE("the page of rules is as the record, the tests and the deviations say") {
  const std::string path = REMATCH_SOURCE_DIR "/golden/semantics/RULES";
  const std::string page = rules_page();
  for (const RuleTest& test : rule_tests()) {
    INFO(test.sentence);
    CHECK(page.find(test.sentence) != std::string::npos);
  }
  std::ifstream file(path + ".md");
  const std::string known{std::istreambuf_iterator<char>(file), {}};
  if (known == page) {
    std::filesystem::remove(path + ".received.md");
    return;
  }
  std::ofstream(path + ".received.md") << page;
  FAIL_CHECK("differs from " << path << ".md; if " << path
                             << ".received.md is right: golden/approve");
}

TEST_CASE("a record of another format, or an incomplete one, names the command that writes it") {
  const char* const texts[] = {
      "",
      "{}",
      R"({"format": 1, "errors": {}, "probes": []})",
      R"({"format": 2, "errors": {}, "probes": []})",
      R"({"format": 2, "errors": {}, "rules": {"N1": "", "N2": ""}, "probes": [{"id": "N1.x", "rule": "N2", "seen": {"a": 1}}]})",
      R"({"format": 2, "errors": {}, "rules": {"N1": ""}, "probes": [{"id": "N1.x", "rule": "N1", "seen": {}}]})",
      R"({"format": 2, "errors": {}, "rules": {}, "probes": [{"id": "N1.x", "rule": "N1", "seen": {"a": 1}}]})",
  };
  for (const char* text : texts) {
    INFO(text);
    CHECK_THROWS_WITH(parse_semantics(text), ContainsSubstring("run golden/make_semantics"));
  }
  const std::string twice = R"({"id": "N1.x", "rule": "N1", "seen": {"a": 1}})";
  CHECK_THROWS_WITH(
      parse_semantics(R"({"format": 2, "errors": {}, "rules": {"N1": ""}, "probes": [)" + twice +
                      "," + twice + "]}"),
      ContainsSubstring("N1.x occurs twice"));
}

TEST_CASE("the record is as it was written, to the byte") {
  const std::string text = read("golden/semantics/semantics.json");
  const std::string_view key = ",\n  \"digest\": \"";
  const std::size_t end = text.rfind(key);
  REQUIRE(end != std::string::npos);
  // FNV-1a, 64 bits, over all that comes before; golden/make_semantics writes it.
  std::uint64_t digest = 0xCBF29CE484222325U;
  for (std::size_t i = 0; i < end; ++i) {
    digest = (digest ^ static_cast<unsigned char>(text[i])) * 0x100000001B3U;
  }
  std::ostringstream line;
  line << key << std::hex << std::setw(16) << std::setfill('0') << digest << "\"\n}\n";
  CHECK(text.substr(end) == line.str());
}

TEST_CASE("a difference between the engine and the record is told with both sides") {
  const Probe probe{"N0.none", "N0", {{"runs", 2}, {"error", "no error"}}};
  CHECK(mismatches(probe, {{"runs", 2}, {"error", "no error"}}).empty());
  CHECK(mismatches(probe, {{"runs", 3}, {"error", "no error"}}) ==
        std::vector<std::string>{"N0.none: runs: PyTorch 2, the engine 3"});
  CHECK(mismatches(probe, {{"runs", 2}}) ==
        std::vector<std::string>{"N0.none: error: PyTorch \"no error\", the engine nothing"});
  CHECK(mismatches(probe, {{"runs", 2}, {"error", "no error"}, {"more", true}}) ==
        std::vector<std::string>{"N0.none: more: the engine true, the record does not say"});
}

}  // namespace
}  // namespace rematch::golden
