"""Comparisons of two commits: verdicts on a synthetic machine, files that are read, and ci/compare on programs that are
scripts."""
import json
import math
import random
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "bench"))
from comparison import LOOKS, Comparison, Failure, Results, fewest_pairs, interval, verdict_of  # noqa: E402

BENCHMARKS = 18
FIRST = fewest_pairs(BENCHMARKS) + 4
# Says that it takes PERCENT / 100 of 10 ms, give or take half a percent, or SECONDS when it counts.
PROGRAM = r"""#!PYTHON -IS
import json, re, sys, os, signal
from pathlib import Path
options = dict(a.split("=", 1) for a in sys.argv[1:])
out = Path(options["--benchmark_out"])
EXTRA
names = [n for n in "NAMES".split() if re.search(options["--benchmark_filter"], n + "/real_time")]
counted = out.name in ("base.json", "new.json")
ms = SECONDS * 1000 if counted else PERCENT / 10 * (1 + os.urandom(1)[0] % 10 / 1e3)
entries = [dict(name=n + "/real_time", run_type="iteration", real_time=ms, time_unit="ms", peak_bytes=PEAK) for n in names]
out.write_text(json.dumps(dict(context={}, benchmarks=entries)) if entries else "")
"""
CMAKE = """cmake_minimum_required(VERSION 3.25)
project(fake NONE)
add_custom_target(rematch-bench COMMAND mkdir -p bin
  COMMAND cp ${CMAKE_SOURCE_DIR}/program bin/rematch-bench
  COMMAND sh -c "git -C ${CMAKE_SOURCE_DIR} log -1 --format=#%H >>bin/rematch-bench")
"""


def noise(draw, processes):
    """Logarithms of times: the machine's state that drifts, what a process has by chance, and other work that wants the
    core for a while."""
    state, busy = draw.gauss(0, 1), 0.0
    for _ in range(processes):
        state = 0.9 * state + math.sqrt(1 - 0.81) * draw.gauss(0, 1)
        busy = (busy if draw.random() < 0.7 else 0) or (draw.expovariate(4) if draw.random() < 0.03 else 0)
        yield 0.03 * state + 0.01 * draw.gauss(0, 1) + math.log1p(busy)


def verdicts(draw, factor=1.0):
    """Those of the benchmarks of one run of ci/compare, measured again while they are open."""
    for _ in range(BENCHMARKS):
        logs = list(noise(draw, 2 * 6 * FIRST))
        # A coin decides which of both is first.
        ratios = [factor * math.exp((a - b) * draw.choice((-1, 1))) for a, b in zip(logs[::2], logs[1::2])]
        for pairs in (FIRST, 2 * FIRST, 6 * FIRST)[:LOOKS]:
            verdict = verdict_of(*interval(ratios[:pairs], BENCHMARKS), 0.02)
            if verdict != "UNSURE":
                break
        yield verdict


def results(folder, benchmarks, **context):
    entries = [{"name": n, "real_time": 1, "time_unit": "ms", **fields} for n, fields in benchmarks.items()]
    path = Path(folder) / f"{random.getrandbits(64):x}.json"
    path.write_text(json.dumps({"context": context, "benchmarks": entries}))
    return Results(path)


class Judging(unittest.TestCase):
    def test_a_program_beside_itself_has_a_false_alarm_in_at_most_one_run_of_a_hundred(self):
        draw = random.Random(1)
        alarms = sum(bool({"SLOWER", "FASTER"} & set(verdicts(draw))) for _ in range(100))
        self.assertLessEqual(alarms, 1)

    def test_five_percent_more_time_is_found_in_at_least_95_of_a_hundred(self):
        draw = random.Random(2)
        found = [v for _ in range(10) for v in verdicts(draw, 1.05)]
        self.assertGreaterEqual(found.count("SLOWER"), 0.95 * len(found))
        self.assertNotIn("SAME", found)

    def test_an_interval_leaves_out_as_much_as_coins_allow(self):
        for n in (FIRST - 5, FIRST - 4, 3 * FIRST, 6 * FIRST):
            low, high = interval(list(range(1, n + 1)), BENCHMARKS)
            self.assertEqual(low + high, n + 1 if low else math.inf)
            of = [sum(math.comb(n, i) for i in range(k)) * 2 * BENCHMARKS * LOOKS * 100 for k in (int(low), int(low) + 1)]
            self.assertTrue(of[0] <= 2**n < of[1], n)


class Counting(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def compared(self, base, new, machines=("A", "A"), **options):
        sides = (results(self.folder, side, rematch_cpu=cpu) for side, cpu in zip((base, new), machines))
        return Comparison(*sides, **options)

    def test_each_change_of_a_count_is_told_and_more_is_a_regression(self):
        base = {"a": {"peak_bytes": 2359296, "flops": 9}, "b": {"flops": 1}, "c": {}, "d": {"error_occurred": True}}
        new = {"a": {"peak_bytes": 2359300, "flops": 8, "allocations": 3}, "b": {}, "e": {},
               "d": {"error_occurred": True, "error_message": "no memory"}}
        c = self.compared(base, new)
        self.assertEqual(c.regressions, [
            "flops of b is missing on the new side", "c is missing on the new side", "d failed on the new side: no memory",
            "peak_bytes of a rose from 2,359,296 to 2,359,300 (+0.00017 %)"])
        self.assertEqual(c.others, ["allocations of a is new: 3", "e is new", "flops of a fell from 9 to 8 (-11.1 %)"])
        self.assertEqual((c.status, self.compared({"b": {"flops": 1}}, {"b": {}}, allow_missing=True).status), (1, 0))

    def test_of_many_benchmarks_whose_counter_moved_the_largest_are_told(self):
        c = self.compared({n: {"flops": 8} for n in "abcdef"}, {n: {"flops": 8 + k} for k, n in enumerate("abcdef")})
        self.assertEqual([r.split(" from")[0] for r in c.regressions],
                         ["flops of f rose", "flops of e rose", "flops of d rose", "flops rose in 2 more"])

    def test_times_are_judged_on_one_machine_alone(self):
        ratios = {"a": [1.05] * 10, "b": [1.0] * 10, "c": [1.05] * 3}
        c = self.compared(*[dict.fromkeys("abc", {})] * 2, ratios=ratios)
        self.assertEqual([t[-1] for t in c.times.values()], ["UNSURE"] * 3)
        self.assertEqual((c.open(), c.status), ((["a", "c"], ["b"]), 3))
        c = self.compared(*[dict.fromkeys("abc", {})] * 2, ratios={n: 2 * r for n, r in ratios.items()})
        self.assertEqual([t[-1] for t in c.times.values()], ["SLOWER", "SAME", "UNSURE"])
        self.assertEqual((c.regressions, c.status), (["a is slower by +5.0 % to +5.0 %"], 1))
        self.assertIn("any", c.report())
        c = self.compared({"a": {}}, {"a": {}}, ("A", "B"), ratios=ratios)
        self.assertEqual((c.status, c.others), (3, ["times are not comparable: the sides differ in rematch_cpu"]))

    def test_what_is_no_result_is_refused_with_its_name(self):
        for text in ("{", "[]", '{"context": {}}', '{"context": {}, "benchmarks": [{"name": "a"}]}'):
            path = Path(self.folder) / "odd.json"
            path.write_text(text)
            with self.assertRaisesRegex(Failure, "odd.json: expected what"):
                Results(path)
        with self.assertRaisesRegex(Failure, "none.json: cannot be read"):
            Results("none.json")


@unittest.skipUnless(all(map(shutil.which, ("git", "cmake", "ninja"))), "git, cmake and ninja are needed")
class Commits(unittest.TestCase):
    """ci/compare in a small repository, each commit of which is a benchmark program."""

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        for file in ("ci/compare", "bench/comparison.py"):
            (self.folder / file).parent.mkdir()
            shutil.copy(ROOT / file, self.folder / file)
        (self.folder / ".gitignore").write_text("/build/\n__pycache__\n")
        (self.folder / "CMakeLists.txt").write_text(CMAKE)
        self.git("init", "-q", "-b", "main", ".")

    def git(self, *arguments):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments], cwd=self.folder, check=True)

    def commit(self, percent=100, peak=1000, names="a/plain/float32/cpu a/k2/float32/cpu", seconds="0.01", extra=""):
        text = PROGRAM
        for name, value in dict(PERCENT=percent, PEAK=peak, NAMES=names, SECONDS=seconds, EXTRA=extra, PYTHON=sys.executable).items():
            text = text.replace(name, str(value))
        (self.folder / "program").write_text(text)
        (self.folder / "program").chmod(0o755)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "a commit")

    def compare(self, expected, *arguments):
        done = subprocess.run(["ci/compare", *arguments], cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(done.returncode, expected, done.stdout + done.stderr)
        return done.stdout, done.stderr

    def test_two_commits_are_built_counted_measured_in_turn_and_judged(self):
        self.commit()
        self.commit(106, 1004)
        out, errors = self.compare(1, "HEAD~1", "HEAD", "--markdown")
        self.assertIn("REGRESSION: 3", out)
        self.assertIn("peak_bytes of a/k2/float32/cpu rose from 1,000 to 1,004 (+0.4 %)", out)
        self.assertRegex(out, r"a/plain/float32/cpu +\+[5-7].* pairs  SLOWER")
        self.assertNotRegex(out, "k2.*pairs")
        self.assertIn("building rematch-bench of HEAD~1", errors)
        # Builds are kept; a commit against itself is the same.
        _, errors = self.compare(0, "HEAD", "HEAD")
        self.assertIn("nothing to time", errors)
        self.assertNotIn("building", errors)

    def test_what_was_measured_is_judged_when_it_is_interrupted(self):
        self.commit()
        self.commit(peak=1004, extra="if 'pair' in out.name: os.kill(os.getppid(), signal.SIGINT)")
        out, errors = self.compare(130, "HEAD~1", "HEAD")
        self.assertIn("interrupted: judged what had been measured", errors)
        self.assertIn("REGRESSION: 2", out)

    def test_what_is_wrong_with_a_commit_a_program_or_an_option_is_said(self):
        self.commit(seconds=60)
        self.commit(101, seconds=60)
        self.commit(extra="sys.exit('no memory')")
        (self.folder / "CMakeLists.txt").write_text('message(FATAL_ERROR "broken")\n')
        self.commit()
        for arguments, message in {
            "": "required: BASE",
            "nowhere HEAD": "no commit is named 'nowhere'",
            "HEAD HEAD --budget 20": "--budget: expected a duration",
            "HEAD HEAD --filter (": "--filter: not a regular expression",
            "HEAD HEAD --budgt 20m": "--budgt",
            "HEAD~3 HEAD~3 --filter zebra": "--filter: no benchmark matches 'zebra'",
            "HEAD~3 HEAD~2 --time zebra": "--time: no benchmark of both commits matches",
            "HEAD~3 HEAD~2 --budget 2m": "--budget 120s is too small",
            "HEAD~3 HEAD~1": "no memory",
            "HEAD~3 HEAD": "configuring 'HEAD' failed",
        }.items():
            out, errors = self.compare(2, *arguments.split())
            self.assertIn(message, errors)
            self.assertEqual(out, "")


if __name__ == "__main__":
    unittest.main()
