"""Amounts, times and changes as text."""

import math
import re
import shutil
import textwrap

from .comparison import Comparison, Counter
from .judging import Time


def change_text(ratio: float) -> str:
    """1.031 is "+3.1 %"."""
    size = abs(ratio - 1) * 100
    digits = f"{size:.0f}" if size >= 999.5 else f"{size:.1f}"
    return ("-" if ratio < 1 and digits != "0.0" else "+") + digits + " %"


def exact_change_text(before: int, after: int) -> str:
    """The same for exact values, where no change reads as none: "+0.0000051 %"."""
    size = abs(after - before) / before * 100
    if size >= 0.05:
        return change_text(after / before)
    return f"{'-' if after < before else '+'}{size:.{1 - math.floor(math.log10(size))}f} %"


def interval_text(t: Time) -> str:
    low, high = change_text(t.low), change_text(min(t.high, 1e9))
    return "any" if math.isinf(t.high) else f"{low.removesuffix(' %')} .. {high}"


def time_text(ns: float | None) -> str:
    """ "812 ns", "12.3 ms"; "-" where there is none."""
    if ns is None:
        return "-"
    units = ["ns", "us", "ms", "s"]
    while ns >= 999.5 and len(units) > 1:
        ns /= 1000
        units.pop(0)
    return f"{ns:.{2 if ns < 9.995 else 1 if ns < 99.95 else 0}f} {units[0]}"


def amount(counter: str, value: int) -> str:
    return f"{value:,}" + (" B" if counter.endswith("_bytes") else "")


def counted(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def listed(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def brief_change(c: Counter) -> str:
    share = f" ({exact_change_text(c.base, c.new)})" if c.base else ""
    return f"{'+' if c.new > c.base else ''}{amount(c.name, c.new - c.base)}{share}"


def change_of(c: Counter) -> str:
    """ "rose by 4 B (+3.1 %), from 128 B to 132 B"."""
    span = f"from {amount(c.name, c.base)} to {amount(c.name, c.new)}"
    return f"{c.change} by {brief_change(c).lstrip('+-')}, {span}"


def unsure_reason(t: Time, c: Comparison) -> str:
    if math.isinf(t.high):
        return "too few pairs for an interval" if t.pairs else "no pair has a time on both sides"
    edge = 1 + c.options.min_effect
    sign = "±" if t.low < 1 / edge and t.high > edge else "-" if t.low < 1 / edge else "+"
    return f"its interval reaches across {sign}{c.options.min_effect * 100:.4g} %"


def headline(c: Comparison) -> str:
    worse, better, unsure = map(c.count, ("regression", "improvement", "UNSURE"))
    text = "NO REGRESSION"
    if worse:
        text = f"REGRESSION: {counted(worse, 'regression')}"
    elif c.time_refused:
        text = "UNSURE: times are not comparable"
    elif unsure:
        text = f"UNSURE: no regression was found, but {counted(unsure, 'time')} could not be judged"
    return text + (f", {counted(better, 'improvement')}" if better else "")


def summary(c: Comparison) -> str:
    """ "30 benchmarks: 27 same, 1 slower, 2 unsure"."""
    verdicts = ("SLOWER", "FASTER", "UNSURE", "SAME")
    told = [f"{c.count(v)} {v.lower()}" for v in verdicts if c.count(v)] or ["no time compared"]
    if only := sum(b.is_counted_only for b in c.benchmarks):
        told.append(f"{only} counted, not timed")
    return f"{counted(len(c.benchmarks), 'benchmark')}: {', '.join(told)}"


# Width of the terminal, or $COLUMNS.
COLUMNS = max(40, shutil.get_terminal_size((100, 24)).columns)


def wrapped(text: str, width: int, first: str = "  ", more: str = "    ") -> str:
    """A unit stays with its number."""
    joined = re.sub(r"(?<=\d) (?=%|[num]?s\b|B\b)", "\0", text)
    form = {"break_on_hyphens": False, "break_long_words": False}
    lines = textwrap.wrap(joined, width, initial_indent=first, subsequent_indent=more, **form)
    return "\n".join(lines).replace("\0", " ") + "\n"


def section(title: str, lines: list[str], width: int) -> str:
    return f"\n{title}\n" + "".join(wrapped(line, width) for line in lines) if lines else ""
