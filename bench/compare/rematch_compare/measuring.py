"""Runs benchmark programs for ci/compare. Needs no library."""

import contextlib
import json
import math
import os
import random
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from .environment import Failure

# Counters of which any difference is reported, and a rise is a regression.
EXACT = ["peak_bytes", "saved_bytes", "offloaded_bytes", "allocations", "layer_runs"]
EXACT += ["recomputed_layers", "flops", "recomputed_flops"]
UNITS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
# Timed where a program has such benchmarks, in the order of importance; else all are.
PLANS = ("plain", "sqrt", "every-reentrant")
TIMED = rf"^[^/]+/({'|'.join(PLANS)})/float32/"
MIN_TIME = 0.02
# Limit of looks at the measurements; rematch-compare divides the false alarms among them.
LOOKS = 3
ALPHA = 0.01


def plain(name: str) -> str:
    """Name without the parts that say how a benchmark ran."""
    return re.sub(r"(/real_time|/manual_time|/repeats:\d+)+$", "", name)


def names_of(program: Path, pattern: str) -> list[str]:
    command = [program, "--benchmark_list_tests=true"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise Failure(f"{program} --benchmark_list_tests failed:\n{done.stderr.strip()}")
    return [n for n in done.stdout.split("\n") if n.strip() and re.search(pattern, n)]


def exact(name: str) -> str:
    """A regular expression for a name; that of the program is not Python's."""
    return re.sub(r"([.\[\]{}()\\*+?^$|])", r"\\\1", name)


@contextlib.contextmanager
def fresh_copy(program: Path, folder: Path) -> Iterator[Path]:
    """A copy of the program for one process. Where in memory a file lies moves times by percents,
    and stays the same as long as the file is cached; copies lie elsewhere each time."""
    copy = Path(folder) / "program"
    shutil.copy(program, copy)
    try:
        yield copy
    finally:
        copy.unlink(missing_ok=True)


def fewest_pairs(benchmarks: int, looks: int = LOOKS) -> int:
    """Fewest pairs that can pass the corrected test: 2^-n <= alpha/(2 benchmarks looks)."""
    return math.ceil(math.log2(2 * max(1, benchmarks) * looks / ALPHA))


def plan(costs: dict[str, float], budget: float, may_leave_out: bool) -> tuple[list[str], int]:
    """The benchmarks to time and the pairs of the first look: so many that a change can be found,
    where need be of the first plans alone, the cheapest first. `costs`: seconds of a pair."""
    order = {n: next((i for i, p in enumerate(PLANS) if f"/{p}/" in n), 9) for n in costs}
    names = sorted(costs, key=lambda n: (order[n], costs[n]))
    total = sum(costs.values())
    for k in range(len(names), 0, -1) if may_leave_out else [len(names)]:
        pairs = int(budget / sum(costs[n] for n in names[:k]))
        if pairs >= fewest_pairs(k):
            # Some more than the fewest, so that one odd pair leaves nothing open.
            return [n for n in costs if n in names[:k]], min(pairs, fewest_pairs(k) + 4)
    fewest, cheapest = fewest_pairs(len(names)), min(names, key=costs.__getitem__)
    enough, one = fewest * total / 60 + 1, fewest_pairs(1) * costs[cheapest] / 60 + 1
    have = f"it has time for {int(budget / total)} pairs of each of {len(names)} benchmarks"
    need = f"no change of time can be found with fewer than {fewest}"
    do = f"--budget {enough:.0f}m would do, or --budget {one:.0f}m --time '^{cheapest}$'"
    raise Failure(f"--budget {budget:.0f}s: {have}, and {need}; {do}")


class Measurement:
    """Runs both programs in turn. One process is one file of one benchmark; neighbours in time have
    the same name in the folders of both sides."""

    def __init__(self, programs: list[Path], folder: Path) -> None:
        self.programs = dict(zip(("base", "new"), programs, strict=True))
        self.folder, self.pairs, self.numbers = folder, {}, {}
        self.children = []
        shutil.rmtree(folder, ignore_errors=True)
        for side in self.programs:
            (folder / side).mkdir(parents=True)

    def start(self, program: Path, pattern: str, min_time: float, out: Path, *more: str | Path):
        command = [program, f"--benchmark_filter={pattern}", f"--benchmark_min_time={min_time:g}"]
        command += ["--benchmark_repetitions=1", f"--benchmark_out={out}"]
        command += ["--benchmark_out_format=json", *more]
        # Its own session: Ctrl-C is for this script.
        how = {"stdout": subprocess.DEVNULL, "text": True, "start_new_session": True}
        self.children = [c for c in self.children if c.poll() is None]
        self.children.append(subprocess.Popen(command, stderr=subprocess.PIPE, **how))
        return self.children[-1]

    def finish(self, side: str, child: subprocess.Popen, out: Path) -> None:
        try:
            _, errors = child.communicate()
        except BaseException:
            for each in self.children:
                each.kill()
            out.unlink(missing_ok=True)
            raise
        if child.returncode != 0:
            raise Failure(f"{self.programs[side]}: status {child.returncode}:\n{errors[-2000:]}")

    def count(self, names: dict[str, list[str]], is_all: bool) -> dict[str, float]:
        """Counts every benchmark of both sides; about how long a pair of each will take. Counts do
        not depend on what else runs, so both sides count at once."""
        running, begin = {}, time.monotonic()
        for side, program in self.programs.items():
            out = self.folder / side / "counts.json"
            pattern = "." if is_all else f"^({'|'.join(map(exact, names[side]))})$"
            running[side] = out, self.start(program, pattern, 1e-9, out)
        costs: dict[str, float] = {}
        for side, (out, child) in running.items():
            self.finish(side, child, out)
            elapsed, result = time.monotonic() - begin, json.loads(out.read_text())
            result["context"]["rematch_times"] = "no"
            out.write_text(json.dumps(result))
            timed = [b for b in result["benchmarks"] if "time_unit" in b]
            ran = {b["name"]: b["real_time"] * UNITS[b["time_unit"]] / 1e9 for b in timed}
            start = max(0.02, (elapsed - sum(ran.values())) / max(1, len(ran)))
            for name, seconds in ran.items():
                name = plain(name)
                costs[name] = costs.get(name, 0) + start + max(2 * MIN_TIME, 1.2 * seconds)
        return costs

    def measure(self, names: list[str], until: int, deadline: float) -> None:
        """Pairs of every name, up to `until` of each, or until the time is over."""
        todo = [(p, n) for p in range(until) for n in names if self.pairs.get(n, 0) <= p]
        for pair, name in todo:
            if time.monotonic() > deadline:
                return
            # A coin decides who is first. With no change, it alone decides the sign of each
            # difference, so the test is exact whatever the noise does.
            sides = random.SystemRandom().sample(sorted(self.programs), 2)
            number = self.numbers.setdefault(name, len(self.numbers))
            parts = [self.folder / side / f"{pair:04}-{number:04}.part" for side in sides]
            for side, part in zip(sides, parts, strict=True):
                with fresh_copy(self.programs[side], self.folder) as program:
                    child = self.start(program, f"^{exact(name)}$", MIN_TIME, part)
                    self.finish(side, child, part)
            for part in parts:
                part.rename(part.with_suffix(".json"))
            self.pairs[name] = pair + 1
