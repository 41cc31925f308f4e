"""Worked diffs of ci/ADDING.md: each applies to the tree, every source that they touch compiles, and a hunt judges
the framework.

  worked_test.py REMATCH CXX    the built program, and the compiler

REMATCH_WORKED=whole also builds the program with all diffs (minutes) and tries each of them.
"""
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "ci" / "ADDING.md").read_text()
LONGEST = 30
REMATCH, CXX = Path(sys.argv[-2]).resolve(), sys.argv[-1]
del sys.argv[1:]
# Strict as a build of the tree, without optimization.
COMPILE = [CXX, "-std=c++20", "-O0", "-Wall", "-Wextra", "-Werror", "-c", "-o", os.devnull]
CONFIGURE = ["-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS_DEBUG=-O0", "-DREMATCH_CUDA=OFF",
             "-DREMATCH_BENCH=OFF", "-DBUILD_TESTING=OFF", f"-DCMAKE_CXX_COMPILER={CXX}"]


def worked():
    """The diff of each section."""
    return dict(re.findall(r"(?ms)^## ([^\n]+)\n.*?^```diff\n(.*?)^```", PAGE))


def run(*command, **options):
    ran = subprocess.run(command, capture_output=True, text=True, **options)
    if ran.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}: {ran.returncode}\n{ran.stdout[-4000:]}{ran.stderr[-4000:]}")
    return ran.stdout


def changed_tree(folder):
    """A copy of the sources with all diffs."""
    listed = run("git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    for file in listed:
        if file and (ROOT / file).is_file() and not file.startswith("golden/"):
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / file, folder / file)
    # Outside of a repository, so that git takes paths as they are.
    for diff in worked().values():
        run("git", "apply", "-", input=diff, cwd=folder, env=dict(os.environ, GIT_CEILING_DIRECTORIES=str(folder.parent)))


@unittest.skipUnless((ROOT / ".git").exists(), "git lists the sources")
class Worked(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.source = Path(cls.scratch.name) / "source"
        cls.source.mkdir()
        changed_tree(cls.source)

    def hunt(self, program, subject, cases):
        python = dict(os.environ, PYTHONPATH=str(self.source / "properties" / "python"), PYTHONDONTWRITEBYTECODE="1")
        return run(program, "check", "--subject", subject, "--cases", cases, "--no-regressions", cwd=self.scratch.name,
                   env=python)

    def test_every_diff_is_short(self):
        self.assertEqual([name for name, diff in worked().items() if diff.count("\n") > LONGEST], [])
        self.assertEqual(len(worked()), 6)

    def test_every_source_that_a_diff_touches_compiles(self):
        touched = [f for diff in worked().values() for f in re.findall(r"(?m)^\+\+\+ b/(\S+\.cpp)$", diff)]
        self.assertGreater(len(touched), 6)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda f: run(*COMPILE, f"-I{self.source}", self.source / f), touched))

    def test_the_framework_is_judged(self):
        self.hunt(REMATCH, f"'{sys.executable}' -m rematch toy", "40")

    @unittest.skipUnless(os.environ.get("REMATCH_WORKED") == "whole", "REMATCH_WORKED=whole builds everything")
    def test_the_program_with_all_of_them_does_what_the_page_says(self):
        build = Path(self.scratch.name) / "build"
        run("cmake", "-S", self.source, "-B", build, *CONFIGURE)
        run("cmake", "--build", build, "--target", "rematch", "rematch-scenario")
        program = build / "bin" / "rematch"
        self.assertIn("enough-draws\n", run(program, "laws"))
        self.assertRegex(self.hunt(program, "engine", "2000"), r"doubled +[\d.]+ ?%")
        self.assertIn("E9", run(program, "faults", "--fault", "E9", "--seeds", "3"))
        self.assertIn('"dims": {', run(program, "serve", "--schema"))
        self.assertIn("keeps 128 bytes", run(build / "bin" / "rematch-scenario", "input_kept"))


if __name__ == "__main__":
    unittest.main()
