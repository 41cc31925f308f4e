"""Judges the benchmarks of two commits: counters exactly, times by an interval of their ratio.

A pair of neighbouring processes gives one ratio, new over base, and a coin decided which of them ran first. So without
a change each ratio lies above 1 with probability 1/2, whatever the noise does, and order statistics of the ratios bound
their median (the interval of the sign test). The error is shared out among benchmarks, sides and looks at the
measurements: all intervals of a comparison hold in 99 of 100 comparisons.
"""
import json
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

ALPHA = 0.01
#: How often ci/compare looks at the measurements, at most.
LOOKS = 3
#: Counters of which any difference is told, and a rise is a regression.
EXACT = ("peak_bytes", "saved_bytes", "offloaded_bytes", "allocations", "layer_runs", "recomputed_layers", "flops",
         "recomputed_flops")
SHOWN = 3
UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1}


class Failure(Exception):
    """Ends a program in exit status 2 with this text."""


def plain(name):
    """A name without the parts that say how the benchmark ran."""
    return re.sub(r"(/real_time|/manual_time|/repeats:\d+)+$", "", name)


def fewest_pairs(benchmarks):
    """Fewest pairs that bound a ratio at all."""
    return math.ceil(math.log2(2 * max(1, benchmarks) * LOOKS / ALPHA))


def interval(ratios, benchmarks):
    """Lower and upper bound of the median ratio; (0, inf) where the pairs are too few for one."""
    n, kept, tail = len(ratios), 0, ALPHA / (2 * max(1, benchmarks) * LOOKS)
    below = 0.5**n
    # The k-th from either end is a bound if fewer than k of n coins show heads with at most this probability.
    while below <= tail and kept < n // 2:
        kept += 1
        below += math.comb(n, kept) * 0.5**n
    ordered = sorted(ratios)
    return (ordered[kept - 1], ordered[-kept]) if kept else (0.0, math.inf)


def verdict_of(low, high, least):
    if low > 1 + least:
        return "SLOWER"
    if high < 1 / (1 + least):
        return "FASTER"
    return "SAME" if low >= 1 / (1 + least) and high <= 1 + least else "UNSURE"


class Results:
    """A file that a benchmark wrote with --benchmark_out: what is no such file is refused with its name."""

    def __init__(self, path):
        try:
            content = json.loads(Path(path).read_text())
            ours = {n: str(v) for n, v in content["context"].items() if n.startswith("rematch_")}
            runs = [b for b in content["benchmarks"] if b.get("run_type", "iteration") == "iteration"]
            self.errors = {plain(b["name"]): b.get("error_message", "") for b in runs if b.get("error_occurred")}
            good = [b for b in runs if plain(b["name"]) not in self.errors]
            self.seconds, self.exact = {}, {}
            for b in good:
                name = plain(b["name"])
                self.seconds.setdefault(name, []).append(float(b["real_time"]) * UNITS[b["time_unit"]])
                counts = {c: int(b[c]) for c in EXACT if c in b}
                held = self.exact.setdefault(name, counts)
                if held != counts:
                    raise Failure(f"{path}: {name}: expected the same counters in each repetition")
        except OSError as e:
            raise Failure(f"{path}: cannot be read: {e.strerror}") from None
        except (ValueError, KeyError, TypeError, AttributeError) as e:
            raise Failure(f"{path}: expected what --benchmark_out_format=json writes: {e!r}") from None
        #: Times are comparable where these are the same.
        self.machine = {n: v for n, v in ours.items() if n not in ("rematch_commit", "rematch_dirty")}


@dataclass
class Comparison:
    """Counts of both sides, and ratios of times by benchmark."""
    base: Results
    new: Results
    ratios: dict = field(default_factory=dict)
    least: float = 0.02
    allow_missing: bool = False
    pattern: str = ""
    regressions: list = field(default_factory=list)
    others: list = field(default_factory=list)
    times: dict = field(default_factory=dict)
    moved: dict = field(default_factory=dict)

    def __post_init__(self):
        if differing := sorted(n for n in self.base.machine | self.new.machine
                               if self.base.machine.get(n) != self.new.machine.get(n)):
            self.others.append(f"times are not comparable: the sides differ in {', '.join(differing)}")
        self.incomparable = bool(differing and self.ratios)
        self.ratios = {} if differing else self.ratios
        names = [n for side in (self.base, self.new) for n in (*side.exact, *side.errors)]
        names = [n for n in dict.fromkeys(names) if re.search(self.pattern, n)]
        if not names:
            raise Failure(f"--filter: no benchmark matches '{self.pattern}'")
        for name in names:
            self.count(name)
        # One change of the source moves a counter of many benchmarks: the largest tell of the others.
        for (counter, moved), found in self.moved.items():
            told = [text for _, text in sorted(found, key=lambda f: -f[0])]
            more = [f"{counter} {moved} in {len(told) - SHOWN} more"] if len(told) > SHOWN else []
            (self.regressions if moved == "rose" else self.others).extend(told[:SHOWN] + more)
        for name, ratios in self.ratios.items():
            low, high = interval(ratios, len(self.ratios))
            self.times[name] = (median(ratios), low, high, len(ratios), verdict_of(low, high, self.least))
            if self.times[name][-1] == "SLOWER":
                self.regressions.append(f"{name} is slower by {change(low)} to {change(high)}")

    def lost(self, text):
        (self.others if self.allow_missing else self.regressions).append(f"{text} is missing on the new side")

    def count(self, name):
        if name in self.new.errors:
            self.regressions.append(f"{name} failed on the new side: {self.new.errors[name]}")
        elif name in self.base.errors:
            self.others.append(f"{name} failed on the base: {self.base.errors[name]}")
        elif name not in self.new.exact:
            self.lost(name)
        elif name not in self.base.exact:
            self.others.append(f"{name} is new")
        else:
            before, after = self.base.exact[name], self.new.exact[name]
            for counter in EXACT:
                was, now = before.get(counter), after.get(counter)
                if was is not None and now is None:
                    self.lost(f"{counter} of {name}")
                elif was is None and now is not None:
                    self.others.append(f"{counter} of {name} is new: {now:,}")
                elif was != now:
                    share = f" ({change(now / was)})" if was else ""
                    moved = "rose" if now > was else "fell"
                    told = f"{counter} of {name} {moved} from {was:,} to {now:,}{share}"
                    size = abs(math.log(now / was)) if now and was else math.inf
                    self.moved.setdefault((counter, moved), []).append((size, told))

    def open(self):
        """Benchmarks to measure again: those that look changed, and those that say nothing yet."""
        unsure = [n for n, t in self.times.items() if t[-1] == "UNSURE"]
        changed = [n for n in unsure if not 1 / (1 + self.least) <= self.times[n][0] <= 1 + self.least]
        return changed, [n for n in unsure if n not in changed]

    @property
    def status(self):
        if self.regressions:
            return 1
        return 3 if self.incomparable or any(t[-1] == "UNSURE" for t in self.times.values()) else 0

    def report(self):
        heads = {0: "NO REGRESSION", 1: f"REGRESSION: {len(self.regressions)}",
                 3: "UNSURE: no regression was found, but not all times could be judged"}
        lines = [heads[self.status], *(f"  {r}" for r in self.regressions)]
        lines += ["also", *(f"  {o}" for o in self.others)] if self.others else []
        if self.times:
            width = max(map(len, self.times))
            lines.append(f"time, new over base; within ±{self.least:.1%} is the same")
        order = ("SLOWER", "FASTER", "UNSURE", "SAME")
        for name, (ratio, low, high, pairs, verdict) in sorted(self.times.items(), key=lambda t: order.index(t[1][-1])):
            span = "any" if math.isinf(high) else f"{change(low)} .. {change(high)}"
            lines.append(f"  {name:{width}}  {change(ratio):>8}  {span:>20}  {pairs:3} pairs  {verdict}")
        return "\n".join(lines) + "\n"


def change(ratio):
    """1.031 is "+3.1 %"; a change of an exact count never reads as none."""
    percent = (ratio - 1) * 100
    digits = 1 if abs(percent) >= 0.05 or not percent else 1 - math.floor(math.log10(abs(percent)))
    return f"{percent:+.{digits}f} %"
