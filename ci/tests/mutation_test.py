"""Mutants of ci/maintain/mutate and mutate_torch are the changes that they are named for, and no others."""
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MAINTAIN = ROOT / "ci" / "maintain"
sys.dont_write_bytecode = True
sys.path.insert(0, str(MAINTAIN))
from mutation import campaign, cpp_mutants, python_mutants  # noqa: E402

CPP = """\
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

std::vector<int> ends(const std::vector<int>& v) { return {v.front(), std::max(1, {v.back()})}; }
}  // namespace rematch
"""
PYTHON = '''\
"""A docstring: 1 < 2."""
import torch

def run(f, x: bool = True, *rest):
    """Not 5 == 5."""
    total = 0
    once = 7
    if x and f is None:
        raise ValueError(f"no f: {1 + 1}")
    with torch.no_grad(), lock:
        total = f(x, total, scale=2)
    try:
        total += once
    except KeyError:
        pass
    return list(rest)
'''


def in_cpp(text=CPP):
    return campaign.mutants_of(text, cpp_mutants.changes_of("x.cpp", text))


def in_python(text=PYTHON):
    return campaign.mutants_of(text, python_mutants.changes_of(text))


def becomes(kind, mutants):
    return [m.becomes for m in mutants if m.kind == kind]


class Mutants(unittest.TestCase):
    def test_a_mutant_is_the_source_but_for_its_lines(self):
        for text, mutants in ((CPP, in_cpp()), (PYTHON, in_python())):
            for m in mutants:
                self.assertNotEqual(text, m.applied(text))
                self.assertEqual(text.split("\n")[:m.line - 1], m.applied(text).split("\n")[:m.line - 1])
                left = len(text) - m.end
                self.assertEqual(text[-left:], m.applied(text)[-left:])

    def test_an_id_outlives_lines_added_elsewhere(self):
        for text, make in (("// A line.\n\n" + CPP, in_cpp), ("# A line.\n\n" + PYTHON, in_python)):
            ids = [m.id for m in make()]
            self.assertEqual(ids, [m.id for m in make(text)])
            self.assertEqual(len(set(ids)), len(ids))


class MutantsInCpp(unittest.TestCase):
    def test_statements_are_deleted_but_declarations_that_are_used_later(self):
        self.assertEqual(becomes("statement deleted", in_cpp()),
                         ["for (std::size_t i = 0; i < v.size(); ++i) ;", ";",
                          "if (total < 0 && !twice) ;", ";"])

    def test_conditions_are_turned_around_and_fixed(self):
        self.assertEqual(becomes("condition negated", in_cpp()),
                         ["if (!(twice)) {",
                          'if (!(total < 0 && !twice)) throw std::runtime_error("a < b && c" + '
                          "std::to_string(1));",
                          "const auto last = [&] { return !(v.back()); };",
                          "return !(twice) ? total : last();"])
        self.assertIn("if (false) {", becomes("condition made false", in_cpp()))
        self.assertIn("if (true) {", becomes("condition made true", in_cpp()))

    def test_operators_are_those_of_the_code_not_of_templates_text_and_comments(self):
        changed = becomes("operator changed", in_cpp())
        self.assertEqual(len(changed), 7)
        for line in ("bool empty() const { return count_ != 0; }", "total -= total;",
                     "for (std::size_t i = 0; i <= v.size(); ++i) total += v[i];",
                     "for (std::size_t i = 0; i < v.size(); --i) total += v[i];",
                     "for (std::size_t i = 0; i < v.size(); ++i) total -= v[i];"):
            self.assertIn(line, changed)

    @unittest.skipUnless((ROOT / ".git").exists(), "ci/maintain/mutate asks git for the sources")
    def test_those_that_are_listed_as_equivalent_are_mutants_of_the_sources(self):
        listed = subprocess.run([MAINTAIN / "mutate", "--list", "--files=engine/*"], capture_output=True, text=True)
        self.assertEqual(listed.stderr, "")


class MutantsInPython(unittest.TestCase):
    def test_statements_are_deleted_but_what_binds_a_name_that_no_other_does(self):
        self.assertEqual(becomes("statement deleted", in_python()), ["pass"] * 4)

    def test_conditions_change_whole_and_in_part(self):
        self.assertEqual(becomes("condition negated", in_python()), ["if (not (x and f is None)):"])
        self.assertEqual(becomes("comparison changed", in_python()), ["if x and f is not None:"])
        self.assertEqual(becomes("part of a condition dropped", in_python()), ["if f is None:", "if x:"])
        self.assertEqual(becomes("operator changed", in_python()),
                         ["if (x or f is None):", "total -= once"])

    def test_scopes_arguments_and_results_are_left_out(self):
        self.assertEqual(becomes("with left out", in_python()),
                         ["with contextlib.nullcontext(), lock:",
                          "with torch.no_grad(), contextlib.nullcontext():"])
        self.assertEqual(becomes("argument dropped", in_python()), ["total = f(x, total)"])
        self.assertEqual(becomes("arguments swapped", in_python()), ["total = f(total, x, scale=2)"])
        self.assertEqual(becomes("result dropped", in_python()), ["return None"])
        self.assertEqual(becomes("call left out", in_python()), ["return rest"])
        self.assertEqual(becomes("exception let through", in_python()), ["raise"])

    def test_constants_change_but_in_texts(self):
        self.assertEqual(becomes("constant changed", in_python()),
                         ["def run(f, x: bool = False, *rest):", "total = 1", "once = 8",
                          "total = f(x, total, scale=3)"])

    def test_every_mutant_compiles_and_names_its_function(self):
        for m in in_python():
            self.assertEqual(m.place, "run")
            compile(m.applied(PYTHON), "mutant", "exec")


if __name__ == "__main__":
    unittest.main()
