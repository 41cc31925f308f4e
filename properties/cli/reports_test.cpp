#include "properties/cli/reports.h"

#include <catch2/catch_test_macros.hpp>

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

TEST_CASE("a report for a tracker has the cause from the profile, or what the law says") {
  KnownDivergence entry;
  entry.why = "It draws anew.";
  Declaration declared;
  declared.name = "mine";
  CHECK(
      contains(issue_of(kViolation, &entry, declared, "print()"), "## Cause\n\nIt draws anew.\n"));
  CHECK(contains(issue_of(kViolation, nullptr, declared, "print()"), "## Cause\n\nNot known. "));
}

}  // namespace rematch::cli
