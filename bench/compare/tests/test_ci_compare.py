"""ci/compare in a small repository of its own, whose benchmark program is a script."""

import json
import shutil
import sys

import pytest
from conftest import COMPARE, run

from rematch_compare.environment import Failure
from rematch_compare.measuring import fewest_pairs, plan

# Says that it takes PERCENT / 100 of 10 ms, give or take half a percent, or SECONDS when it counts.
PROGRAM = r"""#!PYTHON -IS
import json, re, sys, zlib
from pathlib import Path
names, options = "NAMES".split(), dict(a.split("=") for a in sys.argv[1:] if "=" in a)
if "--benchmark_list_tests" in options:
    sys.exit(print("\n".join(names)) if len(sys.argv) == 2 else 1)
PLACE = Path(__file__)
EXTRA
wanted = [n for n in names if re.search(options["--benchmark_filter"], n)]
seed = options["--benchmark_out"].split("/")[-1]
noise = 1 + zlib.crc32(("PERCENT" + seed).encode()) % 10 / 1e3
ms = SECONDS * 1000 if "counts" in seed else PERCENT / 10 * noise
entries = [dict(name=n + "/real_time", run_type="iteration", repetition_index=0, real_time=ms,
                cpu_time=1, time_unit="ms", peak_bytes=PEAK) for n in wanted]
context = dict(date="2026-01-02", host_name="host", num_cpus=2, library_build_type="release")
Path(options["--benchmark_out"]).write_text(json.dumps(dict(context=context, benchmarks=entries)))
"""
CMAKE = """cmake_minimum_required(VERSION 3.25)
project(fake NONE)
add_custom_target(rematch-bench COMMAND mkdir -p bin
  COMMAND cp ${CMAKE_SOURCE_DIR}/program bin/rematch-bench
  COMMAND sh -c "git -C ${CMAKE_SOURCE_DIR} log -1 --format=#%H >>bin/rematch-bench")
"""
is_there = all(map(shutil.which, ("git", "cmake", "ninja")))
pytestmark = pytest.mark.skipif(not is_there, reason="git, cmake and ninja are needed")


class Repository:
    """Each commit is a benchmark program."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "ci").mkdir()
        shutil.copy(COMPARE.parent.parent / "ci" / "compare", folder / "ci")
        ignored = shutil.ignore_patterns("golden", "tests", "__pycache__")
        shutil.copytree(COMPARE, folder / "bench" / "compare", ignore=ignored)
        (folder / ".gitignore").write_text("/build/\n")
        (folder / "CMakeLists.txt").write_text(CMAKE)
        self.git("init", "-q", "-b", "main", ".")

    def git(self, *arguments):
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        assert run(["git", *who, *arguments], self.folder)[0] == 0

    def commit(self, percent=100, peak=1000, names="a/plain a/sqrt", seconds="0.01", extra=""):
        values = {"PERCENT": percent, "PEAK": peak, "NAMES": names, "SECONDS": seconds}
        text = PROGRAM
        for name, value in (values | {"EXTRA": extra, "PYTHON": sys.executable}).items():
            text = text.replace(name, str(value))
        (self.folder / "program").write_text(text)
        (self.folder / "program").chmod(0o755)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "a commit")

    def compare(self, *arguments):
        return run(["ci/compare", *arguments], self.folder)


@pytest.fixture
def repository(tmp_path):
    return Repository(tmp_path)


def test_two_commits_are_built_measured_in_turn_and_judged(repository):
    repository.commit()
    repository.commit(106, 1004)
    status, out, errors = repository.compare("HEAD~1", "HEAD", "--json")
    assert status == 1, errors
    for b in json.loads(out)["benchmarks"]:
        assert b["time"]["verdict"] == "SLOWER" and b["counters"]["peak_bytes"]["change"] == "rose"
        assert b["time"]["pairs"] == fewest_pairs(2) + 4
    assert "building rematch-bench of HEAD~1" in errors
    # Unsure benchmarks are measured again.
    repository.commit(108, 1004)
    status, out, errors = repository.compare("HEAD~1", "HEAD", "--json", "--filter", "plain")
    [b] = json.loads(out)["benchmarks"]
    assert status == 3 and b["time"]["pairs"] == 6 * (fewest_pairs(1) + 4), errors
    assert "1 of 1 are unsure; measuring them again" in errors
    # Builds are kept; a commit against itself is the same, and so is the checkout.
    for new in ("HEAD", "."):
        status, out, errors = repository.compare("HEAD", new, "--filter", "plain")
        assert status == 0 and out.startswith("NO REGRESSION"), errors
        assert "building" not in errors or new == "."


def test_a_change_that_leaves_the_program_as_it_is_is_not_timed(repository):
    repository.commit()
    (repository.folder / "README.md").write_text("words")
    repository.commit()
    for base, new in (("HEAD~1", "HEAD"), ("HEAD", "HEAD~1")):
        status, out, errors = repository.compare(base, new, "--json")
        assert status == 0 and "nothing to time" in errors
        assert [b["time"]["pairs"] for b in json.loads(out)["benchmarks"]] == [0, 0]


def test_every_benchmark_is_counted_and_a_sample_timed(repository):
    names = "a/plain/float32/cpu a/sqrt/float32/cpu a/k2/float32/cpu a/sqrt/float64/cpu"
    repository.commit(names=names)
    repository.commit(peak=1004, names=names + " a/new")
    for options, timed in (([], ["plain", "sqrt"]), (["--time", "k2"], ["k2"])):
        status, out, errors = repository.compare("HEAD~1", "HEAD", "--json", *options)
        found = json.loads(out)["benchmarks"]
        assert status == 1 and len(found) == 5, errors
        assert [b["name"][2:-12] for b in found if b["time"]["pairs"]] == timed
    assert repository.compare("HEAD~1", "HEAD", "--time", "zebra")[0] == 2


def test_a_budget_that_cannot_decide_is_refused_before_anything_is_measured(repository):
    """The programs say that a step takes a minute; nothing waits for it."""
    names = "a/plain/float32/cpu a/sqrt/float32/cpu"
    repository.commit(names=names, seconds=60)
    repository.commit(144, names=names, seconds=60)
    status, out, errors = repository.compare("HEAD~1", "HEAD", "--budget", "2m", "--time", "sqrt")
    assert (status, out) == (2, "") and "timing" not in errors
    assert "--budget 120s: it has time for 0 pairs of each of 1 benchmarks" in errors
    assert "--budget 25m would do, or --budget 25m --time '^a/sqrt/float32/cpu$'" in errors
    # Time is left for one of them: it is timed, and its regression does not pass.
    status, out, errors = repository.compare("HEAD~1", "HEAD", "--budget", "30m", "--markdown")
    assert status == 1 and "has time for 1 of 2 benchmarks" in errors and "a/plain" in out, errors


def test_a_plan_has_enough_pairs_for_every_benchmark_that_it_times():
    costs = {f"m{i}/{p}/float32/cpu": 0.1 * (i + 1) for i in range(6) for p in ("plain", "sqrt")}
    for budget in (5, 20, 60, 600):
        names, pairs = plan(costs, budget, True)
        assert fewest_pairs(len(names)) <= pairs <= fewest_pairs(len(names)) + 4
        assert sum(costs[n] for n in names) * pairs <= budget
    assert len(names) == 12 and pairs == fewest_pairs(12) + 4
    with pytest.raises(Failure, match=r"time for 1 pairs of each of 12 .* '\^m0/plain"):
        plan(costs, 5, False)


def test_what_was_measured_is_judged_when_it_is_interrupted(repository):
    repository.commit()
    kill = "import os, signal\nif '0003-' in str(sys.argv): os.kill(os.getppid(), signal.SIGINT)"
    repository.commit(peak=1004, extra=kill)
    status, out, errors = repository.compare("HEAD~1", "HEAD", "--json")
    assert status == 130 and "interrupted: judged what had been measured" in errors
    assert json.loads(out)["exit_status"] == 1
    assert json.loads(out)["benchmarks"][0]["time"]["pairs"] in (3, 4)


def test_what_is_wrong_with_a_commit_a_program_or_an_option_is_said(repository):
    repository.commit()
    repository.commit(extra="sys.exit('no memory')")
    (repository.folder / "CMakeLists.txt").write_text('message(FATAL_ERROR "broken")\n')
    repository.commit()
    for arguments, message in {
        "": "required: BASE",
        "nowhere HEAD": "no commit is named 'nowhere'",
        "HEAD HEAD --budget soon": "--budget: expected a duration",
        "HEAD HEAD --budget 20": "--budget: expected a duration",
        "HEAD HEAD --budget 90h": "--budget: expected a duration",
        "HEAD HEAD --budgt 20m": "--budgt: no such option",
        "HEAD HEAD --filter (": "--filter: not a regular expression",
        "HEAD~2 HEAD~2 --filter zebra": "--filter: no benchmark matches 'zebra' in 'HEAD~2'",
        "HEAD~2 HEAD~1": "no memory",
        "HEAD~2 HEAD": "configuring 'HEAD' failed",
    }.items():
        status, out, errors = repository.compare(*arguments.split())
        assert (status, out) == (2, "") and message in errors, errors
