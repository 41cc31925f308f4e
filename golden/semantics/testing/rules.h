#pragma once

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/testing/ledger_scope.h"
#include "golden/semantics/testing/semantics_record.h"

namespace rematch::golden {

/// A line for each fact in which `seen`, what the engine did, differs from what PyTorch did and
/// from what the table of deviations allows; and for each fact that only one side has.
std::vector<std::string> mismatches(const Probe& probe, const nlohmann::json& seen);

/// What a test of a rule saw, probe by probe.
class Findings {
 public:
  /// `seen` holds facts under the names that the record has for probe `id`.
  void add(const std::string& id, nlohmann::json seen);
  /// Checks all of it against the record, with Catch2.
  void check() const;
  const std::vector<std::pair<std::string, nlohmann::json>>& all() const { return all_; }

 private:
  std::vector<std::pair<std::string, nlohmann::json>> all_;
};

/// A test of a rule, known by name so that other tests can go through all of them.
struct RuleTest {
  std::string rule;
  std::string sentence;
  void (*run)(Findings&);
};

const std::vector<RuleTest>& rule_tests();
/// Returns true, to be called before main().
bool add_rule_test(RuleTest test);

}  // namespace rematch::golden

/// A test case of a rule: RULE("N2", "each backward recomputes a checkpoint once") { seen.add(...);
/// }
#define REMATCH_RULE_NAMED(function, rule, sentence)                                   \
  static void function(rematch::golden::Findings& seen);                               \
  [[maybe_unused]] static const bool function##_added =                                \
      rematch::golden::add_rule_test({rule, sentence, &(function)});                   \
  TEST_CASE_METHOD(rematch::testing::LedgerScope, sentence, "[semantics][" rule "]") { \
    rematch::golden::Findings findings;                                                \
    function(findings);                                                                \
    findings.check();                                                                  \
  }                                                                                    \
  static void function(rematch::golden::Findings& seen)
#define REMATCH_RULE_JOINED(number, rule, sentence) \
  REMATCH_RULE_NAMED(rule_##number, rule, sentence)
#define REMATCH_RULE_AT(number, rule, sentence) REMATCH_RULE_JOINED(number, rule, sentence)
#define RULE(rule, sentence) REMATCH_RULE_AT(__COUNTER__, rule, sentence)
