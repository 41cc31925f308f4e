"""Reports of a comparison as text for a terminal, Markdown and JSON."""

import json
import math
from typing import Any

from . import words
from .comparison import Benchmark, Comparison
from .measuring import ALPHA

# Limit of a comment on a pull request.
LONGEST_COMMENT = 60000
TITLES = {"regression": "regressions", "improvement": "improvements", "note": "also changed"}
ORDER = ("SLOWER", "UNSURE", "FASTER", "SAME", "-")
HEAD = ["benchmark", "base", "new", "change", "interval", "pairs", "verdict"]


def in_order(c: Comparison) -> list[Benchmark]:
    """Verdicts that need a reader first, and the largest change first."""
    effects = {b.name: -abs(math.log(b.time.ratio or 1)) for b in c.benchmarks}
    return sorted(c.benchmarks, key=lambda b: (ORDER.index(b.time.verdict), effects[b.name]))


def cells(b: Benchmark) -> list[str]:
    t = b.time
    change = [words.change_text(t.ratio), words.interval_text(t)] if t.ratio else ["-", "-"]
    times = [words.time_text(t.base_ns), words.time_text(t.new_ns)]
    return [b.name, *times, *change, str(t.pairs or "-"), b.verdict]


def table(c: Comparison) -> str:
    rows = [HEAD] + [cells(b) for b in in_order(c) if not b.is_counted_only]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    text = ""
    for name, *middle, verdict in rows:
        cells_ = "".join("  " + x.rjust(w) for x, w in zip(middle, widths[1:], strict=False))
        text += f"  {name.ljust(widths[0])}{cells_}  {verdict}\n"
    return text


def text_report(c: Comparison, width: int = words.COLUMNS) -> str:
    sides = f"base {c.sides.base.name()}, new {c.sides.new.name()}"
    out = words.wrapped(words.headline(c), width, "", "  ")
    out += words.wrapped(f"{sides}; {words.summary(c)}", width)
    for kind, title in TITLES.items():
        out += words.section(title, [f.text for f in c.findings if f.kind == kind], width)
    unsure = [b for b in c.benchmarks if b.time.verdict == "UNSURE"]
    reasons = [f"{b.name}: {words.unsure_reason(b.time, c)}" for b in unsure]
    out += words.section("unsure", reasons, width) + words.section("note", c.notes, width)
    if c.judged():
        legend = (
            f"{'CPU' if c.clock == 'cpu' else 'real'} time, new over base with its 95 % interval"
        )
        band = f"within ±{c.options.min_effect * 100:.4g} % is the same"
        out += words.section("time", [f"{legend}; {band}"], width) + table(c)
    return out


def markdown_report(c: Comparison) -> str:
    """A title and the text, as it is."""
    text = text_report(c, 100).split("\n", 1)[1].replace("```", "'''")
    cut = "\n\nThe rest did not fit.\n" if len(text) > LONGEST_COMMENT else ""
    return f"### Benchmarks: {words.headline(c)}\n\n```\n{text[:LONGEST_COMMENT]}{cut}```\n"


def rounded(value: float | None) -> float | None:
    """More digits would differ from one mathematical library to the next."""
    return None if value is None else float(f"{value:.6g}")


def benchmark_json(b: Benchmark, c: Comparison) -> dict[str, Any]:
    t, entry = b.time, {"name": b.name, "verdict": b.verdict, "presence": b.presence}
    entry |= {"error": b.error} if b.error else {}
    bounded = t.ratio is not None and not math.isinf(t.high)
    time: dict[str, Any] = {"verdict": t.verdict, "certain": t.certain, "pairs": t.pairs}
    for name in ("base_ns", "new_ns", "ratio", "p_slower", "p_faster"):
        time[name] = rounded(getattr(t, name))
    time["interval"] = [rounded(t.low), rounded(t.high)] if bounded else None
    why = {"unsure_because": words.unsure_reason(t, c)} if t.verdict == "UNSURE" else {}
    counters = {x.name: {"change": x.change, "base": x.base, "new": x.new} for x in b.counters}
    return {**entry, "time": time, **why, "counters": counters}


def json_report(c: Comparison) -> str:
    o, sides = c.options, []
    for side in (c.sides.base, c.sides.new):
        files = {"dirty": side.dirty, "files": len(side.files)}
        sides.append({"label": side.name(), "commit": side.commit, **files})
    judged = {"min_effect": o.min_effect, "alpha": ALPHA, "level": 0.95}
    differences = [
        dict(zip(("field", "expected", "got"), d, strict=False)) for d in c.sides.differences
    ]
    report = {
        "format": 1,
        "headline": words.headline(c),
        "exit_status": c.exit_status,
        "base": sides[0],
        "new": sides[1],
        "options": {**judged, "looks": o.looks, "clock": c.clock},
        "paired_by": "repetition" if c.sides.by_repetition else "file",
        "fewest_pairs": c.fewest_pairs,
        "fingerprint_differences": differences,
        "notes": c.notes,
        "findings": [{"kind": f.kind, "text": f.text, "benchmarks": f.names} for f in c.findings],
        "benchmarks": [benchmark_json(b, c) for b in c.benchmarks],
    }
    return json.dumps(report, indent=2, ensure_ascii=False) + "\n"
