"""Findings of a comparison, for a person to read: one for each cause.

One change of the source moves the counters of many benchmarks, by other amounts in each. So those
of which the same counters rose, or fell, are one finding. A peak follows from what is saved and
allocated: it tells causes apart only where nothing else changed. Times are grouped by model."""

import math
from collections import defaultdict

from . import words
from .comparison import Comparison, Finding

SHOWN = 3


def size(before: float | None, after: float | None) -> float:
    """Size of an effect: comparable between bytes and times, up or down."""
    if not before or not after:
        return 0 if before == after else math.inf
    return abs(math.log(after / before))


def model_of(benchmark: str) -> str:
    return benchmark.split("/")[0]


def some(rows: list[str]) -> str:
    return words.listed(rows[:SHOWN] + [f"{len(rows) - SHOWN} more"] * (len(rows) > SHOWN))


def presence_findings(c: Comparison) -> list[Finding]:
    missing = "note" if c.options.allow_missing else "regression"
    kinds = {
        "base_only": (missing, "missing on the new side"),
        "new_only": ("note", "new: the base has no such benchmark"),
        "new_failed": ("regression", "failed on the new side: "),
        "base_failed": ("note", "failed on the base: "),
    }
    groups = defaultdict(list)
    for b in c.benchmarks:
        if b.presence != "both":
            be = "" if b.error else "is "
            groups[kinds[b.presence][0], be + kinds[b.presence][1] + b.error].append(b.name)
    rows = groups.items()
    return [Finding(kind, f"{some(x)} {said}", x, math.inf) for (kind, said), x in rows]


def odd_findings(c: Comparison) -> list[Finding]:
    """Findings about counters that one side lacks, or that differ between repetitions."""
    groups, found = defaultdict(list), []
    for b in c.benchmarks:
        for x in b.changed:
            lost = "note" if c.options.allow_missing else "regression"
            before, after = (words.amount(x.name, v or 0) for v in (x.base, x.new))
            if x.change == "missing":
                key, values = (lost, "is missing on the new side"), f"the base has {before}"
            elif x.change == "added":
                key, values = ("note", "is new"), after
            elif x.change == "unsteady":
                kind = "note" if x.base_varies and x.new <= x.base else "regression"
                side = "the new side" if x.new_varies else "the base"
                key = kind, f"differs between repetitions of {side}"
                values = f"at most {before} on the base, {after} on the new"
            else:
                continue
            groups[x.name, *key].append((b.name, values))
    for (counter, kind, said), rows in groups.items():
        names = [name for name, _ in rows]
        text = f"{counter} of {some(names)} {said}: {rows[0][1]}"
        found.append(Finding(kind, text, names, math.inf))
    return found


def label_of(c: Comparison, benchmark: str) -> str:
    """ "; peak in the backward of layer 2 (conv2d)", where the new side says it."""
    runs = [side.runs(benchmark) for side in (c.sides.base, c.sides.new)]
    before, now = (next((r.label for r in side if r.label), "") for side in runs)
    return now and f"; {now}" + (f", before: {before}" if before not in ("", now) else "")


def counter_findings(c: Comparison) -> list[Finding]:
    groups, found = defaultdict(list), []
    for b in c.benchmarks:
        for change in ("rose", "fell"):
            if counters := [x for x in b.counters if x.change == change]:
                cause = [x.name for x in counters if x.name != "peak_bytes"]
                effect = max(size(x.base, x.new) for x in counters)
                groups[change, *cause].append((effect, b.name, counters))
    for (change, *_), group in groups.items():
        group.sort(key=lambda row: -row[0])
        names = [name for _, name, _ in group]
        rows = [
            f"{name} ({', '.join(f'{x.name} {words.brief_change(x)}' for x in counters)})"
            for _, name, counters in group
        ]
        moved = words.listed(list(dict.fromkeys(x.name for *_, xs in group for x in xs)))
        models = words.listed(list(dict.fromkeys(map(model_of, names))))
        text = f"{moved} {change} in {len(names)} benchmarks of {models}: {some(rows)}"
        if len(group) == 1:
            text = "; ".join(f"{x.name} of {names[0]} {words.change_of(x)}" for x in group[0][2])
        peak = next((name for _, name, xs in group if xs[0].name == "peak_bytes"), "")
        kind = "regression" if change == "rose" else "improvement"
        found.append(Finding(kind, text + label_of(c, peak), names, group[0][0]))
    return found


def time_findings(c: Comparison) -> list[Finding]:
    groups, found = defaultdict(list), []
    for b in sorted(c.benchmarks, key=lambda b: -size(1, b.time.ratio)):
        if b.time.verdict in ("SLOWER", "FASTER"):
            groups[b.time.verdict, model_of(b.name)].append(b)
    for (verdict, model), group in groups.items():
        names, word, rows = [b.name for b in group], verdict.lower(), []
        for t in (b.time for b in group):
            change, interval = words.change_text(t.ratio)[1:], words.interval_text(t)
            pairs, now = words.counted(t.pairs, "pair"), words.time_text(t.new_ns)
            span = f"(95 % interval {interval}, {pairs}): {words.time_text(t.base_ns)}"
            rows.append(f"{change} {span}, now {now}")
        text = f"{names[0]} is {word} by {rows[0]}"
        if len(group) > 1:
            rows = [
                f"{name} by {row.replace('):', ';')})"
                for name, row in zip(names, rows, strict=True)
            ]
            text = f"{len(names)} benchmarks of {model} are {word}: {some(rows)}"
        kind = "regression" if verdict == "SLOWER" else "improvement"
        found.append(Finding(kind, text, names, size(1, group[0].time.ratio)))
    return found


def findings_of(c: Comparison) -> list[Finding]:
    return presence_findings(c) + odd_findings(c) + counter_findings(c) + time_findings(c)


def notes_of(c: Comparison, share: float) -> list[str]:
    """Limits of the comparison as a whole."""
    notes, times = [], c.judged()
    if c.options.no_time:
        return []
    for name, *values, first, other in c.sides.differences:
        expected, got = (f'"{text}"' if text else "none" for text in values)
        differs = f"{name} differs: expected {expected} as in {first}, got {got} in {other}"
        notes.append(f"time is not compared: {differs}")
    if notes:
        same = "exact counters do not depend on the machine and are compared nevertheless"
        return [*notes, same]
    most = max((t.pairs for t in times), default=0)
    alone = [t for t in times if t.verdict in ("SLOWER", "FASTER") and not t.certain]
    if most < c.fewest_pairs or alone:
        have = f"there {'is' if most == 1 else 'are'} {words.counted(most, 'pair')}"
        among = f"among {words.counted(len(times), 'benchmark')} a change of time is certain"
        bound = "(false alarms in at most 1 % of runs)"
        text = f"{have}; {among} {bound} with {c.fewest_pairs} or more"
        notes.append(text + f"; on intervals alone: {len(alone)} SLOWER or FASTER" * bool(alone))
    if c.sides.by_repetition and c.judged():
        single = "each side is a single run, so repetitions are paired by their index"
        alike = "a busy machine during one of them looks like a change"
        notes.append(f"{single}; {alike}; ci/compare runs both in turn, several times")
    if c.clock == "cpu" and c.options.clock == "auto":
        had = f"the programs had a core for {share * 100:.0f} % of their time"
        notes.append(f"{had}, so CPU times are compared; --clock real compares real times")
    return notes
