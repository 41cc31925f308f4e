"""Schedules of the package checkpoint_schedules as plans of cases.

  python3 schedules.py LAYERS SNAPSHOTS    a plan, as JSON, for `"plan"` of a case
  python3 schedules.py --counts            the table in schedules_test.cpp

Needs `pip install checkpoint_schedules`. Its snapshots include the input, which a run holds anyway.
"""

from __future__ import annotations

import json
import sys
from typing import Any

COUNTED = [(n, s) for n in (2, 5, 8, 16, 32, 48) for s in (1, 2, 3, 5, 7)]


def forwards(layers: int, snapshots: int, multistage: bool = False) -> list[Any]:
    """The forwards of a schedule, in order: those that advance, and those that are differentiated."""
    from checkpoint_schedules import MultistageCheckpointSchedule, Revolve

    snapshots = min(snapshots, layers - 1)
    schedule = MultistageCheckpointSchedule(layers, snapshots, 0) if multistage else Revolve(layers, snapshots)
    found = []
    for action in schedule:
        if type(action).__name__ == "Forward":
            found.append(action)
        if schedule.is_exhausted:
            return found
    return found


def plan(layers: int, snapshots: int) -> dict[str, Any]:
    """Each advance is a segment, which is run again from its beginning; later ones lie within."""
    intervals = {(a.n0, a.n1) for a in forwards(layers, snapshots) if not a.write_adj_deps}
    segments: list[dict[str, Any]] = []
    for begin, end in sorted(intervals, key=lambda i: (i[0], -i[1])):
        place = segments
        while place and begin < place[-1]["end"]:
            place = place[-1].setdefault("nested", [])
        place.append({"begin": begin, "end": end, "variant": "non_reentrant"})
    return {"segments": segments}


def count(layers: int, snapshots: int) -> int:
    """Forward steps, which both algorithms of the package agree on."""
    counts = {sum(a.n1 - a.n0 for a in forwards(layers, snapshots, m)) for m in (False, True)}
    (agreed,) = counts
    return agreed


if __name__ == "__main__":
    if sys.argv[1:] == ["--counts"]:
        print(",\n".join(f"{{{n}, {s}, {count(n, s)}}}" for n, s in COUNTED if s < n))
    elif len(sys.argv) == 3:
        print(json.dumps(plan(int(sys.argv[1]), int(sys.argv[2]))))
    else:
        sys.exit(__doc__)
