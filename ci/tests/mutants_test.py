#!/usr/bin/env python3
"""ci/mutants.py makes the changes that it says, where it says, and no others."""
import json
import subprocess
import sys
import unittest
from pathlib import Path

CI = Path(__file__).resolve().parent.parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(CI))
import mutants  # noqa: E402

SOURCE = """\
#include <vector>
namespace rematch {
template <class T>
class Counter {
  int count_ = 0;  // not 5 < 6
  bool empty() const { return count_ == 0; }
};

int sum(const std::vector<int>& v, bool twice) {
  int total = 0;
  for (std::size_t i = 0; i < v.size(); ++i) total += v[i];
  if (twice) {
    total += total;
  }
  if (total < 0 && !twice) throw std::runtime_error("a < b && c" + std::to_string(1));
  const auto last = [&] { return v.back(); };
  last();
  return twice ? total : last();
}
}  // namespace rematch
"""


def becomes(kind):
    return [m.becomes for m in mutants.mutants_of("x.cpp", SOURCE) if m.kind == kind]


class Mutants(unittest.TestCase):
    def test_statements_are_deleted_but_declarations_that_are_used_later(self):
        self.assertEqual(becomes("statement deleted"),
                         ["for (std::size_t i = 0; i < v.size(); ++i) ;", ";",
                          "if (total < 0 && !twice) ;", ";"])

    def test_conditions_are_turned_around_and_fixed(self):
        self.assertEqual(becomes("condition negated"),
                         ["if (!(twice)) {",
                          'if (!(total < 0 && !twice)) throw std::runtime_error("a < b && c" + '
                          "std::to_string(1));",
                          "const auto last = [&] { return !(v.back()); };",
                          "return !(twice) ? total : last();"])
        self.assertIn("if (false) {", becomes("condition made false"))
        self.assertIn("if (true) {", becomes("condition made true"))

    def test_operators_are_those_of_the_code_not_of_templates_text_and_comments(self):
        changed = becomes("operator changed")
        self.assertEqual(len(changed), 7)
        for line in ("bool empty() const { return count_ != 0; }", "total -= total;",
                     "for (std::size_t i = 0; i <= v.size(); ++i) total += v[i];",
                     "for (std::size_t i = 0; i < v.size(); --i) total += v[i];",
                     "for (std::size_t i = 0; i < v.size(); ++i) total -= v[i];"):
            self.assertIn(line, changed)

    def test_a_mutant_is_applied_at_its_place_alone(self):
        for m in mutants.mutants_of("x.cpp", SOURCE):
            lines, changed = SOURCE.split("\n"), m.applied(SOURCE).split("\n")
            self.assertNotEqual(lines, changed)
            self.assertEqual(lines[:m.line - 1], changed[:m.line - 1])
            left = len(SOURCE) - m.end
            self.assertEqual(SOURCE[-left:], m.applied(SOURCE)[-left:])

    def test_an_id_outlives_lines_added_elsewhere(self):
        def ids(text):
            return [m.id for m in mutants.mutants_of("x.cpp", text)]
        self.assertEqual(ids(SOURCE), ids("// A line.\n\n" + SOURCE))
        self.assertEqual(len(set(ids(SOURCE))), len(ids(SOURCE)))

    @unittest.skipUnless((CI.parent / ".git").exists(), "ci/mutate asks git for the sources")
    def test_those_that_are_listed_as_equivalent_are_mutants_of_the_sources(self):
        entries = json.loads((CI / "mutate_equivalents.json").read_text())
        files = [f"--files={entry['file']}" for entry in entries]
        listed = subprocess.run([CI / "mutate", "--list", *files], capture_output=True, text=True)
        self.assertEqual(listed.stderr, "")


if __name__ == "__main__":
    unittest.main()
