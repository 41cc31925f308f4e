"""Every `#include "..."` follows an arrow of arrows.txt, and the arrows have no circle."""
import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ARROWS = "ci/tests/arrows.txt"
HOUSES = ("engine", "properties", "scenarios", "bench", "golden", "ci")


def within(folder, names):
    return next((n for n in sorted(names, key=len, reverse=True) if (folder + "/").startswith(n + "/")), None)


def is_test(path):
    return "/testing/" in path or "_test." in path.rpartition("/")[2]


def read_arrows(text):
    """The rules {folder: folders}, the exceptions {(file, file)}, and what is wrong with the text itself."""
    rules, exceptions, errors = {}, set(), []
    for number, line in enumerate(text.splitlines(), 1):
        if exception := re.fullmatch(r"(\S+) -> (\S+): .+", line):
            exceptions.add(exception.groups())
        elif rule := re.fullmatch(r"(\S+):((?: \S+)*)", line):
            named = {t: [r for r in rules if within(r, [t])] for t in rule[2].split()}
            rules[rule[1]] = [r for earlier in named.values() for r in earlier]
            errors += [f"{ARROWS}:{number}: {rule[1]} names {t}, which is on no earlier line: a circle or a wrong name"
                       for t, earlier in named.items() if not earlier]
        elif line.strip() and not line.startswith("#"):
            errors.append(f"{ARROWS}:{number}: expected 'folder: folders' or 'file -> file: reason', got '{line}'")
    return rules, exceptions, errors


def broken(sources, text):
    """Errors of sources {path: text} by the arrows in text."""
    rules, exceptions, errors = read_arrows(text)
    unused = set(exceptions)
    for path, source in sorted(sources.items()):
        folder, house = path.rpartition("/")[0], path.split("/")[0]
        if (room := within(folder, rules)) is None:
            errors.append(f"{path}: {folder} has no line in {ARROWS}")
            continue
        allowed = {room, *rules[room]}
        if is_test(path):
            allowed.update(*([r, *t] for r, t in rules.items() if r.split("/")[0] == house))
        for number, line in enumerate(source.splitlines(), 1):
            included = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
            if not included or included[1] not in sources:
                continue
            target = included[1]
            if (path, target) in exceptions:
                unused.discard((path, target))
            elif is_test(target) and not is_test(path):
                errors.append(f"{path}:{number}: includes {target}, which is for tests")
            elif within(target.rpartition("/")[0], allowed) is None:
                errors.append(f"{path}:{number}: includes {target}, to which {room} has no arrow in {ARROWS}")
    return errors + [f"{ARROWS}: the exception {a} -> {b} is no longer needed" for a, b in sorted(unused)]


class Arrows(unittest.TestCase):
    arrows = "lib/low:\nlib/high: lib/low\nlib/low/odd.h -> lib/high/b.h: history\n"
    tree = {"lib/low/a.h": "", "lib/high/b.h": '#include "lib/low/a.h"', "lib/low/odd.h": '#include "lib/high/b.h"'}

    def finds(self, expected, sources={}, arrows=""):
        errors = broken(self.tree | sources, self.arrows + arrows)
        self.assertEqual(len(errors), 1, errors)
        self.assertRegex(errors[0], expected)

    def test_downward_includes_and_those_of_tests_pass(self):
        self.assertEqual(broken(self.tree | {"lib/low/a_test.cpp": '#include "lib/high/b.h"'}, self.arrows), [])

    def test_an_upward_include_is_found_with_its_line(self):
        self.finds(r"lib/low/c.cpp:2: includes lib/high/b.h", {"lib/low/c.cpp": '\n#include "lib/high/b.h"'})

    def test_an_include_of_test_support_is_found(self):
        support = {"lib/high/testing/t.h": "", "lib/high/c.h": '#include "lib/high/testing/t.h"'}
        self.finds("lib/high/c.h:1: includes lib/high/testing/t.h, which is for tests", support)

    def test_a_circle_among_the_arrows_is_found(self):
        self.finds(r"arrows.txt:4: lib/a names lib/b", arrows="lib/a: lib/b\nlib/b: lib/a\n")

    def test_a_folder_without_a_line_is_found(self):
        self.finds("lib/new has no line", {"lib/new/c.cpp": ""})

    def test_an_exception_that_is_not_needed_is_found(self):
        self.finds("no longer needed", {"lib/low/odd.h": ""})

    def test_the_tree_follows_the_arrows(self):
        files = [f for house in HOUSES for f in (ROOT / house).rglob("*") if f.suffix in (".h", ".cpp", ".cu", ".cuh")]
        sources = {f.relative_to(ROOT).as_posix(): f.read_text() for f in files}
        self.assertGreater(len(sources), 500)
        self.maxDiff = None
        self.assertEqual("\n".join(broken(sources, (ROOT / ARROWS).read_text())), "")


if __name__ == "__main__":
    unittest.main()
