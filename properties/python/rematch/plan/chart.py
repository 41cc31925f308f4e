"""Draws the bytes over a step with characters."""

from collections.abc import Mapping
from itertools import pairwise

from rematch.journal.storages import Curve
from rematch.plan.step import LOSS

_EIGHTHS = " ▁▂▃▄▅▆▇█"


def chart_of(curves: Mapping[str, Curve], width: int, height: int) -> str:
    """Returns one picture for each curve, all on one scale: the highest bar is the largest peak. A column stands for as
    many operators as fit; a "b" marks where the backward begins."""
    top = max((curve.peak for curve in curves.values()), default=0)
    return "\n".join(_one(name, curve, top, width, height) for name, curve in curves.items())


def _one(name: str, curve: Curve, top: int, width: int, height: int) -> str:
    columns = _columns(curve.live, width)
    lines = [f"{name}: {curve.peak:,} B at most"]
    for row in range(height, 0, -1):
        cells = []
        for value in columns:
            eighths = round(value / max(top, 1) * height * 8) - (row - 1) * 8
            cells.append(_EIGHTHS[max(0, min(8, eighths))])
        lines.append("".join(cells).rstrip())
    below = [" "] * len(columns)
    for mark in curve.marks:
        if mark.name == LOSS:
            below[min(len(columns) - 1, mark.at * len(columns) // max(1, len(curve.live)))] = "b"
    lines.append("".join(below).rstrip() + "  (b: the backward begins)")
    return "\n".join(lines)


def _columns(live: list[int], width: int) -> list[int]:
    """Returns the maximum of each of at most `width` equal parts."""
    count = min(width, len(live))
    cuts = [i * len(live) // count for i in range(count + 1)] if count else []
    return [max(live[a:b]) for a, b in pairwise(cuts)]
