"""A history: one line of JSON a commit, and the changes that no single pair of commits shows.

ruptures looks for the best change of level in a series, and for the best stretch at another level.
The Mann-Whitney test of what lies apart, times the number of places to choose from (Bonferroni),
bounds false alarms. Both sides are searched again."""

import json
import math
import re
from argparse import Namespace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import ruptures
from pydantic import BaseModel, create_model
from scipy import stats

from . import words
from .comparison import Counter, Finding, exact_of, ordered
from .environment import Failure
from .findings import size
from .measuring import ALPHA, EXACT
from .reports import TITLES
from .results import Positive, ResultFile, Text, Whole, read
from .sides import expanded, median_time, pair_sides

FEWEST_POINTS = 8
SHORTEST = 3  # Points of a level.


def p_of(inside: np.ndarray, outside: np.ndarray, choices: float) -> float:
    # Two tests are made of each series.
    return 2 * choices * float(stats.mannwhitneyu(inside, outside).pvalue)


def search(v: np.ndarray, threshold: float) -> list[int]:
    n, ranks = len(v), stats.rankdata(v)
    if n < FEWEST_POINTS or ranks.min() == ranks.max():
        return []
    at, _ = ruptures.Binseg(model="l1", min_size=SHORTEST, jump=1).fit(v).predict(n_bkps=1)
    if p_of(v[:at], v[at:], n - 2 * SHORTEST + 1) > threshold:
        if n < 3 * SHORTEST:
            return []
        kernel = ruptures.KernelCPD(kernel="linear", min_size=SHORTEST)
        at, end, _ = kernel.fit(ranks.reshape(-1, 1)).predict(n_bkps=2)
        if p_of(v[at:end], np.concatenate([v[:at], v[end:]]), n * (n - 1) / 2) > threshold:
            return []
    return [*search(v[:at], threshold), at, *(at + x for x in search(v[at:], threshold))]


def level_changes(values: list[float], threshold: float) -> list[tuple[int, float, float]]:
    """The first point that is changed, and the levels before and after: medians up to the next."""
    found = search(np.array(values), threshold)
    ends = [0, *found, len(values)]
    levels = [float(np.median(values[a:b])) for a, b in zip(ends, ends[1:], strict=False)]
    return list(zip(found, levels, levels[1:], strict=False))


kinds = {name: (Positive | None, None) for name in ("real_ns", "cpu_ns")}
Point = create_model("Point", **(kinds | {name: (Whole | None, None) for name in EXACT}))


class Entry(BaseModel):
    format: Literal[1]
    commit: Text
    date: Text
    fingerprint: dict[Text, Text]
    benchmarks: dict[Text, Point]  # type: ignore[valid-type]


def entry_of(files: list[ResultFile]) -> dict[str, Any]:
    """Entry for one commit: medians over all files, and their exact counters."""
    for f in files:
        if not f.commit or f.dirty:
            raise Failure(f"{f.path}: expected results of a commit without uncommitted changes")
    # Against itself: this checks that commits and fingerprints agree.
    sides = pair_sides(files, files)
    for name, expected, got, file, other in sides.differences:
        raise Failure(f'{other}: {name}: expected "{expected}" as in {file}, got "{got}"')
    points: dict[str, dict[str, float]] = {}
    for name in {n: None for f in files for n in f.runs}:
        times = {f"{clock}_ns": median_time(sides.base, name, clock) for clock in ("real", "cpu")}
        exact = {counter: exact_of(sides.base.runs(name), counter)[0] for counter in EXACT}
        points[name] = {k: v for k, v in (times | exact).items() if v is not None}
    entry = {"format": 1, "commit": files[0].commit, "date": files[0].date}
    return entry | {"fingerprint": files[0].fingerprint, "benchmarks": points}


def append(path: Path, results: list[str]) -> None:
    """All are read before anything is written. In the order in which they were measured."""
    entries = [entry_of([ResultFile(f) for f in expanded([r])]) for r in results]
    old = path.read_bytes() if path.exists() else b""
    known = [(e.commit, e.fingerprint) for e in (read_history(path) if old.strip() else [])]
    with open(path, "a") as out:
        out.write("\n" * (old != b"" and not old.endswith(b"\n")))
        for entry in sorted(entries, key=lambda e: e["date"]):
            short, key = entry["commit"][:12], (entry["commit"], entry["fingerprint"])
            if key in known:
                print(f"{path} has {short} from this machine already; left alone")
                continue
            known.append(key)
            out.write(json.dumps(entry, separators=(",", ":")) + "\n")
            print(f"{path}: {short}, {words.counted(len(entry['benchmarks']), 'benchmark')}")


def read_history(path: Path) -> list[Entry]:
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as e:
        raise Failure(f"{path}: cannot be read: {e.strerror}") from None
    numbered = [(i, line) for i, line in enumerate(lines, 1) if line.strip()]
    if not numbered:
        raise Failure(f"{path}: expected one commit per line, got none")
    return [read(Entry, f"{path}:{i}", line) for i, line in numbered]


class History:
    """Entries of the machine and benchmarks of the last one, from the commit asked for on."""

    def __init__(self, entries: list[Entry], o: Namespace) -> None:
        at = [i for i, e in enumerate(entries) if e.commit.startswith(o.since)]
        if not at:
            raise Failure(f'--since: no commit of the history begins with "{o.since}"')
        entries = entries[at[-1] :] if o.since else entries
        self.entries = [e for e in entries if e.fingerprint == entries[-1].fingerprint]
        self.left_out = len(entries) - len(self.entries)
        names = sorted(n for n in self.entries[-1].benchmarks if re.search(o.filter, n))
        clock = "cpu_ns" if o.clock == "cpu" else "real_ns"
        series = {} if o.no_time else {n: self.values(n, clock) for n in names}
        series = {n: s for n, s in series.items() if s}
        self.longest = max(map(len, series.values()), default=FEWEST_POINTS)
        found: list[Finding] = []
        for name, s in series.items():
            # Bonferroni over all series.
            found += self.time_findings(name, s, ALPHA / len(series), math.log1p(o.min_effect))
        for name in names:
            found += [f for counter in EXACT for f in self.counter_findings(name, counter)]
        self.findings = ordered(found)
        self.exit_status = int(any(f.kind == "regression" for f in found))

    def values(self, name: str, what: str) -> list[tuple[int, float]]:
        points = [(i, e.benchmarks.get(name)) for i, e in enumerate(self.entries)]
        return [(i, v) for i, p in points if p and (v := getattr(p, what)) is not None]

    def finding(self, name: str, text: str, before: float, after: float, end: float) -> Finding:
        """`end`: the level at the end of the history. A change that was undone is no regression."""
        undone = after > before and end <= before
        kind = "improvement" if after < before else "note" if undone else "regression"
        return Finding(kind, text + "; undone since" * undone, [name], size(before, after))

    def time_findings(self, name: str, s: list, threshold: float, small: float) -> list[Finding]:
        changes = level_changes([math.log(ns) for _, ns in s], threshold)
        found = []
        for at, low, high in changes:
            if abs(high - low) < small:
                continue
            before, after = math.exp(low), math.exp(high)
            first, last = s[at][0], len(self.entries) - 1
            ago, change = words.counted(last - first, "commit"), words.change_text(after / before)
            times = f"({ago} ago): {words.time_text(before)}, now {words.time_text(after)}"
            text = f"{name} since commit {self.entries[first].commit[:12]}: {change} {times}"
            # A level that still is higher by a little counts as undone.
            found.append(self.finding(name, text, before, after, math.exp(changes[-1][2] - small)))
        return found

    def counter_findings(self, name: str, counter: str) -> list[Finding]:
        known, found = self.values(name, counter), []
        for (_, before), (i, after) in zip(known, known[1:], strict=False):
            if before != after:
                change = words.change_of(Counter(counter, int(before), int(after)))
                text = f"{counter} of {name} {change}, at commit {self.entries[i].commit[:12]}"
                found.append(self.finding(name, text, before, after, known[-1][1]))
        return found

    def text(self) -> str:
        n, width = sum(f.kind == "regression" for f in self.findings), words.COLUMNS
        word = f"REGRESSION: {words.counted(n, 'regression')}" if n else "NO REGRESSION"
        headline = f"{word} over {words.counted(len(self.entries), 'commit')}"
        out = words.wrapped(headline, width, "", "  ")
        for kind, title in TITLES.items():
            out += words.section(title, [f.text for f in self.findings if f.kind == kind], width)
        left = f"{words.counted(self.left_out, 'commit')} of another machine or build left out"
        few = f"a change of time is looked for in {FEWEST_POINTS} commits or more"
        notes = [left] * bool(self.left_out) + [few] * (self.longest < FEWEST_POINTS)
        return out + words.section("note", notes, width)
