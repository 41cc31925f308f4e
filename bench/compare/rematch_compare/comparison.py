"""A comparison of two sides: counters exactly, times by rematch_compare.judging."""

from argparse import Namespace
from dataclasses import dataclass, field

from .judging import Time, judge
from .measuring import EXACT, fewest_pairs
from .results import Run
from .sides import Sides, log_ratios, median_time


@dataclass
class Counter:
    """The highest value over all repetitions of each side; None: the side lacks it."""

    name: str
    base: int | None
    new: int | None
    base_varies: bool = False
    new_varies: bool = False

    @property
    def change(self) -> str:
        if self.base is None or self.new is None:
            return "missing" if self.new is None else "added"
        if self.base_varies or self.new_varies:
            return "unsteady"
        return "same" if self.base == self.new else "rose" if self.new > self.base else "fell"


@dataclass
class Benchmark:
    name: str
    presence: str = "both"  # base_only, new_only, base_failed, new_failed
    error: str = ""
    time: Time = field(default_factory=Time)
    counters: list[Counter] = field(default_factory=list)

    @property
    def is_counted_only(self) -> bool:
        return self.presence == "both" and self.time.base_ns is None and self.time.new_ns is None

    @property
    def changed(self) -> list[Counter]:
        return [c for c in self.counters if c.change != "same"]

    @property
    def verdict(self) -> str:
        """That of its time, or what there is to say where there is none."""
        if self.presence != "both":
            return {"base_only": "MISSING", "new_only": "NEW"}.get(self.presence, "FAILED")
        if self.time.verdict != "-" or not self.counters:
            return self.time.verdict
        return "CHANGED" if self.changed else "EQUAL"


@dataclass
class Finding:
    kind: str  # regression, improvement, note
    text: str
    names: list[str]  # Names of benchmarks.
    effect: float


def ordered(findings: list[Finding]) -> list[Finding]:
    """Regressions first, and of each kind the largest first."""
    order = ["regression", "improvement", "note"]
    return sorted(findings, key=lambda f: (order.index(f.kind), -f.effect))


@dataclass
class Comparison:
    options: Namespace
    sides: Sides
    clock: str
    benchmarks: list[Benchmark]
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    fewest_pairs: int = 0

    def judged(self) -> list[Time]:
        return [b.time for b in self.benchmarks if b.time.verdict != "-"]

    def count(self, what: str) -> int:
        """Presentation of a verdict of times, or of a kind of findings."""
        found = [t.verdict for t in self.judged()] + [f.kind for f in self.findings]
        return found.count(what)

    @property
    def time_refused(self) -> bool:
        return not self.options.no_time and bool(self.sides.differences)

    @property
    def exit_status(self) -> int:
        if self.count("regression"):
            return 1
        return 3 if self.time_refused or self.count("UNSURE") else 0


def exact_of(runs: list[Run], name: str) -> tuple[int | None, bool]:
    """The highest value, and whether there is another one."""
    values = {v for run in runs for v in run.exact.get(name, [])}
    return max(values, default=None), len(values) > 1


def benchmark_of(sides: Sides, name: str) -> Benchmark:
    base, new = sides.base.runs(name), sides.new.runs(name)
    before, after = (next((r.error for r in runs if r.error), "") for runs in (base, new))
    b = Benchmark(name, error=after or before)
    if not base or not new:
        b.presence = "base_only" if base else "new_only"
        return b
    if b.error:
        b.presence = "base_failed" if before else "new_failed"
    for counter in EXACT:
        (low, base_varies), (high, new_varies) = exact_of(base, counter), exact_of(new, counter)
        if low is not None or high is not None:
            b.counters.append(Counter(counter, low, high, base_varies, new_varies))
    return b


def judge_times(c: Comparison) -> None:
    o, timed = c.options, []
    for b in c.benchmarks:
        b.time.base_ns = median_time(c.sides.base, b.name, c.clock)
        b.time.new_ns = median_time(c.sides.new, b.name, c.clock)
        if b.presence == "both" and not b.is_counted_only:
            timed.append(b)
    if not timed or o.no_time or c.time_refused:
        return
    samples = [log_ratios(c.sides, b.name, c.clock) for b in timed]
    c.fewest_pairs = fewest_pairs(len(timed), looks=o.looks)
    for b, t in zip(timed, judge(samples, o.min_effect, o.looks), strict=True):
        t.base_ns, t.new_ns = b.time.base_ns, b.time.new_ns
        if t.ratio is not None and t.base_ns is not None:
            # The median of the new side by itself could contradict the pairs.
            t.new_ns = t.base_ns * t.ratio
        b.time = t
