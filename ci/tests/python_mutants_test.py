#!/usr/bin/env python3
"""ci/python_mutants.py makes the changes that it says, where it says, and no others."""
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from python_mutants import Mutants  # noqa: E402

SOURCE = '''\
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


def becomes(kind):
    return [m["becomes"] for m in Mutants(SOURCE).found.values() if m["kind"] == kind]


class PythonMutants(unittest.TestCase):
    def test_statements_are_deleted_but_what_binds_a_name_that_no_other_does(self):
        self.assertEqual(becomes("statement deleted"), ["pass"] * 4)

    def test_conditions_change_whole_and_in_part(self):
        self.assertEqual(becomes("condition negated"), ["if (not (x and f is None)):"])
        self.assertEqual(becomes("comparison changed"), ["if x and f is not None:"])
        self.assertEqual(becomes("part of a condition dropped"), ["if f is None:", "if x:"])
        self.assertEqual(becomes("operator changed"), ["if (x or f is None):", "total -= once"])

    def test_scopes_arguments_and_results_are_left_out(self):
        self.assertEqual(becomes("with left out"), ["with contextlib.nullcontext(), lock:",
                                                    "with torch.no_grad(), contextlib.nullcontext():"])
        self.assertEqual(becomes("argument dropped"), ["total = f(x, total)"])
        self.assertEqual(becomes("arguments swapped"), ["total = f(total, x, scale=2)"])
        self.assertEqual(becomes("result dropped"), ["return None"])
        self.assertEqual(becomes("call left out"), ["return rest"])
        self.assertEqual(becomes("exception let through"), ["raise"])

    def test_constants_change_but_in_texts(self):
        self.assertEqual(becomes("constant changed"), ["def run(f, x: bool = False, *rest):", "total = 1",
                                                       "once = 8", "total = f(x, total, scale=3)"])

    def test_every_mutant_is_the_source_but_for_that(self):
        for m in Mutants(SOURCE).found.values():
            self.assertEqual(m["scope"], "run")
            compile(m["text"], "mutant", "exec")
            self.assertNotEqual(m["text"], SOURCE)


if __name__ == "__main__":
    unittest.main()
