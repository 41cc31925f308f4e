"""Schedules of the package checkpoint_schedules as plans of cases.

  python3 schedules.py --planner NAME      a planner for `rematch court`: revolve, multistage or hrevolve
  python3 schedules.py LAYERS SNAPSHOTS    a plan, as JSON, for `"plan"` of a case
  python3 schedules.py --counts            the table in schedules_test.cpp

Needs `pip install checkpoint_schedules`. Its snapshots include the input, which a run holds anyway.
"""

from __future__ import annotations

import json
import sys
from typing import Any

COUNTED = [(n, s) for n in (2, 5, 8, 16, 32, 48) for s in (1, 2, 3, 5, 7)]


def make(name: str, layers: int, snapshots: int) -> Any:
    """All snapshots are in memory: segments cannot say that one waits on a disk."""
    from checkpoint_schedules import HRevolve, MultistageCheckpointSchedule, Revolve

    if name == "hrevolve":
        return HRevolve(layers, snapshots, 0)
    return MultistageCheckpointSchedule(layers, snapshots, 0) if name == "multistage" else Revolve(layers, snapshots)


def forwards(layers: int, snapshots: int, name: str = "revolve") -> list[Any]:
    """The forwards of a schedule, in order: those that advance, and those that are differentiated."""
    schedule = make(name, layers, min(snapshots, layers - 1))
    found = []
    for action in schedule:
        if type(action).__name__ == "Forward":
            found.append(action)
        if schedule.is_exhausted:
            return found
    return found


def intervals_of(steps: list[Any]) -> set[tuple[int, int]]:
    """Each advance is a segment, which is run again from its beginning; later ones lie within."""
    return {(a.n0, a.n1) for a in steps if not a.write_adj_deps}


def plan(layers: int, snapshots: int) -> dict[str, Any]:
    intervals = intervals_of(forwards(layers, snapshots))
    segments: list[dict[str, Any]] = []
    for begin, end in sorted(intervals, key=lambda i: (i[0], -i[1])):
        place = segments
        while place and begin < place[-1]["end"]:
            place = place[-1].setdefault("nested", [])
        place.append({"begin": begin, "end": end, "variant": "non_reentrant"})
    return {"segments": segments}


def count(layers: int, snapshots: int) -> int:
    """Forward steps, which both algorithms of the package agree on."""
    counts = {sum(a.n1 - a.n0 for a in forwards(layers, snapshots, m)) for m in ("revolve", "multistage")}
    (agreed,) = counts
    return agreed


def answer(name: str, chain: dict[str, Any]) -> dict[str, Any]:
    """As many snapshots as fit beside what a backward has: a value, its gradient, and the one that it makes."""
    layers = chain["layers"]
    if len(layers) < 2:
        return {"refused": "a schedule of one layer"}
    largest = max([1, *(layer["output_bytes"] for layer in layers)])
    slots = max(0, (chain["budget_bytes"] - chain["resident_bytes"]) // largest - 3)
    steps = forwards(len(layers), 1 + slots, name)
    costs = [layer["forward_cost"] for layer in layers]
    again = sum(sum(costs[a.n0 : a.n1]) for a in steps) - sum(costs)
    return {"segments": sorted(intervals_of(steps)), "promise": {"recomputations": again}}


def serve(name: str) -> None:
    for line in sys.stdin:
        print(json.dumps(answer(name, json.loads(line))), flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["--counts"]:
        print(",\n".join(f"{{{n}, {s}, {count(n, s)}}}" for n, s in COUNTED if s < n))
    elif sys.argv[1:2] == ["--planner"] and sys.argv[2:] in (["revolve"], ["multistage"], ["hrevolve"]):
        serve(sys.argv[2])
    elif len(sys.argv) == 3 and sys.argv[1].isdigit():
        print(json.dumps(plan(int(sys.argv[1]), int(sys.argv[2]))))
    else:
        sys.exit(__doc__)
