"""The files of both sides, which of them ran as neighbours, and the times that they give."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from .environment import Failure
from .results import ResultFile, Run


@dataclass
class Side:
    files: list[ResultFile]
    label: str = ""

    def __post_init__(self) -> None:
        first = self.files[0]
        self.commit, self.dirty = first.commit, any(f.dirty for f in self.files)
        for f in self.files:
            if f.commit != first.commit:
                one = f'expected "{first.commit}" as in {first.path}, one commit for all of a side'
                raise Failure(f'{f.path}: rematch_commit: {one}; got "{f.commit}"')

    def name(self) -> str:
        """The label, else the first characters of the commit id."""
        return self.label or (self.commit[:12] + "+changes" * self.dirty if self.commit else "?")

    def runs(self, benchmark: str) -> list[Run]:
        return [f.runs[benchmark] for f in self.files if benchmark in f.runs]


@dataclass
class Sides:
    base: Side
    new: Side
    pairs: list[tuple[ResultFile, ResultFile]]
    # Field, expected, got, and the files of both; times are comparable when there is none.
    differences: list[tuple[str, str, str, str, str]] = field(default_factory=list)

    @property
    def by_repetition(self) -> bool:
        """One file on each side: their repetitions are the pairs."""
        return len(self.base.files) == len(self.new.files) == 1


def pair_sides(base: list[ResultFile], new: list[ResultFile], by_name: bool = False) -> Sides:
    """Pairs files in their order, or by their names, where one may lack a partner."""
    if not by_name and len(base) != len(new):
        raise Failure(f"expected as many files on either side, got {len(base)} and {len(new)}")
    if not any(f.runs for f in base + new):
        raise Failure(f"{base[0].path}: benchmarks: expected at least one benchmark, got none")
    partners = {Path(f.path).name: f for f in new}
    named = [(f, partners[Path(f.path).name]) for f in base if Path(f.path).name in partners]
    sides = Sides(Side(base), Side(new), named if by_name else list(zip(base, new, strict=True)))
    first, known = base[0], set()
    for f in base + new:
        for name in sorted(first.fingerprint.keys() | f.fingerprint.keys()):
            expected, got = first.fingerprint.get(name, ""), f.fingerprint.get(name, "")
            if expected != got and name not in known:
                known.add(name)
                sides.differences.append((name, expected, got, first.path, f.path))
    return sides


def expanded(paths: list[str]) -> list[str]:
    """Files in the order given; a folder stands for its *.json in the order of their names."""
    files: list[str] = []
    for path in paths:
        inside = sorted(map(str, Path(path).glob("*.json"))) if Path(path).is_dir() else [path]
        if not inside:
            raise Failure(f"{path}: expected result files in the folder, got no *.json")
        files += inside
    return files


def read_sides(base: list[str], new: list[str], labels: list[str] | None = None) -> Sides:
    """Two folders are paired by the names of their files, all else in the order given."""
    by_name = all(len(side) == 1 and Path(side[0]).is_dir() for side in (base, new))
    files = [[ResultFile(path) for path in expanded(side)] for side in (base, new)]
    sides = pair_sides(*files, by_name=by_name)
    sides.base.label, sides.new.label = labels or ("", "")
    return sides


def usable(times: list[float]) -> bool:
    """A clock that stood still says nothing about a ratio."""
    return bool(times) and min(times) > 0


def choose_clock(sides: Sides) -> tuple[str, float]:
    """CPU time when both sides ran one thread on the CPU, and in most pairs neither process had a
    core for 97 % of its time; real time alone shows that a program waits. Exchanging the sides of a
    pair changes nothing, so the choice favours no verdict. Also the median share of CPU time."""
    context = sides.base.files[0].fingerprint
    one_thread = context.get("rematch_threads") == "1" and context.get("rematch_device") == "cpu"

    def share(f: ResultFile) -> float:
        real, cpu = (sum(sum(r.times[x]) for r in f.runs.values()) for x in ("real", "cpu"))
        return cpu / real if real and cpu else 1

    middle = median(max(share(a), share(b)) for a, b in sides.pairs) if sides.pairs else 1
    return ("cpu" if middle < 0.97 and one_thread and not sides.differences else "real"), middle


def log_ratios(sides: Sides, name: str, clock: str) -> list[float]:
    """The time of the new side over that of the base for every pair that has both, as logarithms;
    the time of a file is the median of its repetitions."""
    ratios: list[float] = []
    for a, b in sides.pairs:
        times = [f.runs[name].times[clock] for f in (a, b) if name in f.runs]
        if len(times) < 2 or not all(map(usable, times)):
            continue
        if not sides.by_repetition:
            times = [[median(times[0])], [median(times[1])]]
        ratios += [math.log(y / x) for x, y in zip(*times, strict=False)]
    return ratios


def median_time(side: Side, name: str, clock: str) -> float | None:
    medians = [median(r.times[clock]) for r in side.runs(name) if usable(r.times[clock])]
    return median(medians) if medians else None
