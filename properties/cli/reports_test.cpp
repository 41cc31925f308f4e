#include "properties/cli/reports.h"

#include <catch2/catch_test_macros.hpp>

#include "properties/case/json.h"
#include "properties/cli/commands.h"
#include "properties/testing/shell.h"

namespace rematch::cli {
namespace {

using rematch::testing::contains;

const Violation kViolation{"rng-after-step", "step 0", "1", "2"};

}  // namespace

TEST_CASE("a script becomes a test that fails where the script shows a difference") {
  const std::string test =
      test_of(kViolation, "import sys\n\nx = 1\nsys.exit(1 if different else 0)\n");
  CHECK(contains(test, "    def test_rng_after_step(self):\n        \"\"\"After every step"));
  CHECK(contains(test,
                 "\n        import sys\n\n        x = 1\n        self.assertFalse(different)\n"));
  CHECK(contains(test_of(kViolation, "same = 1\nraise SystemExit(0 if same else 1)"),
                 "        same = 1\n        self.assertTrue(same)\n"));
  CHECK_THROWS_AS(test_of(kViolation, "print()"), UsageError);
}

TEST_CASE(
    "a report for a tracker has a title of what is seen, numbers, and the cause if it is known") {
  const Case c = case_from_json(R"({"format": 1, "seed": 5, "input": [2, 3],
      "layers": [{"kind": "dropout"}, {"kind": "relu"}],
      "plan": {"segments": [{"begin": 0, "end": 2, "variant": "non_reentrant"}]}})");
  KnownDivergence entry;
  entry.why = "It draws anew.";
  Declaration declared;
  declared.name = "mine";
  const std::string known = issue_of(c, kViolation, &entry, declared, "print()");
  CHECK(contains(known,
                 "\n# mine: another random state: dropout, relu; layers 0..1 non_reentrant\n"));
  CHECK(contains(known, "Without the checkpoint: 1\nWith it: 2\nat step 0\n"));
  CHECK(contains(known, "## Cause\n\nIt draws anew.\n"));
  CHECK(
      contains(issue_of(c, kViolation, nullptr, declared, "print()"), "## Cause\n\nNot known.\n"));
  CHECK_FALSE(contains(known, kViolation.law));
}

}  // namespace rematch::cli
