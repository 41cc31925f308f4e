"""A plan, its report, the chart of its bytes, and the snapshot of its memory for PyTorch's viewer."""

import pickle
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from rematch.journal.storages import Allocation, Curve, composition
from rematch.plan.options import STORED, Applied
from rematch.plan.step import END, LOSS, TAIL, Measured, Step

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


_ALIGN = 512
"""The viewer takes addresses for names, so each storage gets its own address, a multiple of this."""


def write_snapshot(path: str | Path, curve: Curve) -> None:
    """Writes allocations and frees in order, with operator and submodule in place of a stack. A microsecond of the
    trace stands for an operator."""
    events = sorted(_events(curve), key=lambda event: event[:2])
    snapshot = {"segments": [], "device_traces": [[entry for _, _, entry in events]], "allocator_settings": {}}
    # The viewer reads protocols 2 to 4; Python 3.14 writes the fifth unless told otherwise.
    Path(path).write_bytes(pickle.dumps(snapshot, protocol=4))


def _events(curve: Curve) -> Iterator[tuple[int, int, dict[str, Any]]]:
    address = _ALIGN
    for order, allocation in enumerate(curve.allocations):
        if not allocation.bytes:
            continue
        yield allocation.born, order, _entry("alloc", address, allocation, allocation.born)
        if allocation.died is not None:
            for after, action in enumerate(("free_requested", "free_completed")):
                # An operator's frees come before the allocations of the next one.
                entry = _entry(action, address, allocation, allocation.died)
                yield allocation.died, after - 2, entry
        address += (allocation.bytes + _ALIGN - 1) // _ALIGN * _ALIGN


def _entry(action: str, address: int, allocation: Allocation, at: int) -> dict[str, Any]:
    where = f"{allocation.phase}: {allocation.module or 'the model'}"
    frames = [{"filename": where, "name": allocation.operator or allocation.module, "line": 0}]
    return {"action": action, "addr": address, "size": allocation.bytes, "stream": 0, "time_us": at, "frames": frames}


_MOST_ROWS = 10


@dataclass(frozen=True)
class Point:
    """A choice that no other one beats: its peak in bytes and the seconds of its step (operations on fake tensors)."""

    peak: int
    seconds: float
    choices: Mapping[str, str]


@dataclass
class BlockKind:
    """Blocks that are alike."""

    kind: str
    names: list[str]
    keeps: dict[str, int]
    """Bytes that one of these blocks adds to what is live, by option, with its output."""
    cost: dict[str, int]
    """The cost of each option in nanoseconds; on fake tensors, in operations."""


@dataclass
class Plan:
    """A choice for each block, what it promises, and what was measured."""

    name: str
    choices: dict[str, str]
    """The choice for each block by name: "stored", "checkpointed", or the name of a policy."""
    budget: int
    promised: int
    """The bytes of the peak, computed from measurements of other choices."""
    measured: int
    """The bytes of the peak of a step with this plan."""
    plain: Measured
    seen: Measured
    seconds: float | None
    """The seconds of a plain step; None on fake tensors."""
    cost: int
    """The promised cost beyond a plain step in nanoseconds; on fake tensors, in operations."""
    seconds_measured: float | None
    """The seconds of a step with this plan; None on fake tensors."""
    points: list[Point]
    kinds: list[BlockKind]
    differs: list[str]
    """Gradients and buffers whose bits differ from those of the plain step."""
    notes: list[str]
    step: Step = field(repr=False)
    took: float = 0.0

    @property
    def plain_peak(self) -> int:
        """The bytes of the peak of the plain step."""
        return self.plain.curve.peak

    @property
    def least_peak(self) -> int:
        """The bytes of the least peak that any choice has."""
        return self.points[-1].peak

    def switch(self, model: Any, on: bool) -> None:
        """Puts the plan on a model, or takes it off; it fits judge_model(switch=)."""
        applied = model.__dict__.pop("_rematch_plan", None)
        if applied is not None:
            applied.remove()
        if on:
            model.__dict__["_rematch_plan"] = Applied(model, self.choices, self.step.options)

    def snapshot(self, path: str, plain: bool = False) -> None:
        """Writes the memory of a step with the plan, or of the plain step if `plain`, for PyTorch's viewer
        (docs.pytorch.org/memory_viz, or python -m torch.cuda._memory_viz)."""
        write_snapshot(path, (self.plain if plain else self.seen).curve)

    def chart(self, width: int = 72, height: int = 10) -> str:
        """Returns a picture of the bytes over the step, plain and with the plan."""
        return chart_of({"plain": self.plain.curve, "with the plan": self.seen.curve}, width, height)

    def __str__(self) -> str:
        parts = [self._headline(), self._warning(), self._where(), self._blocks(), self._table()]
        return "\n".join([*filter(None, parts), *(f"note: {note}" for note in self.notes)])

    def _headline(self) -> str:
        chosen = sum(choice != STORED for choice in self.choices.values())
        return (
            f"{self.name}: {chosen} of {len(self.choices)} blocks checkpointed; peak {size(self.plain_peak)} -> "
            f"{size(self.measured)} (promised {size(self.promised)}, budget {size(self.budget)}){self._slower()}"
        )

    def _slower(self) -> str:
        if self.seconds is None or self.seconds_measured is None:
            return f", {self.cost:.3g} operations more"
        promised, measured = self.cost / 1e9 / self.seconds, self.seconds_measured / self.seconds - 1
        return f", {measured:+.0%} time (promised {promised:+.0%})"

    def _warning(self) -> str:
        if not self.differs:
            return ""
        more = f" and {len(self.differs) - 1} more" if len(self.differs) > 1 else ""
        return f"NOT SAFE      {self.differs[0]}{more} differs from the plain step; judge_model() says why"

    def _where(self) -> str:
        lines = []
        for what, seen in (("plain", self.plain), ("with the plan", self.seen)):
            curve = seen.curve
            lines.append(f"{what}: the peak is {place(seen)}")
            parts = composition(curve, curve.peak_at, self._block_of)
            rest = curve.peak
            for name, count in list(parts.items())[:6]:
                lines.append(f"  {size(count):>10}  {name}")
                rest -= count
            if parts and rest:
                lines.append(f"  {size(rest):>10}  the rest")
        saved = self.plain_peak - self.least_peak
        lines.append(f"checkpointing can save {size(saved)} at most{self._why_nothing(saved)}")
        return "\n".join(lines)

    def _why_nothing(self, saved: int) -> str:
        if saved > self.plain_peak // 100:
            return f" ({saved / self.plain_peak:.0%} of the peak)"
        return f": the peak is {place(self.plain)}, where what blocks keep is not what is large"

    def _blocks(self) -> str:
        lines = ["blocks                                   one keeps (its output included), and costs"]
        unit = "ops" if self.seconds is None else "ms"
        for kind in self.kinds:
            names = kind.names[0] if len(kind.names) == 1 else f"{len(kind.names)} like {kind.names[0]}"
            for option, kept in kind.keeps.items():
                cost = f"{kind.cost[option]:.3g}" if self.seconds is None else f"{kind.cost[option] / 1e6:.1f}"
                title = f"{kind.kind} ({names})" if option == STORED else ""
                lines.append(f"  {title:<38} {option:<16} {size(kept):>10}  {cost:>9} {unit}")
        lines += [f"  {option:<16} {', '.join(names)}" for option, names in self._chosen().items()]
        return "\n".join(lines)

    def _chosen(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name, choice in self.choices.items():
            found.setdefault(choice, []).append(name)
        return {choice: shortened(names) for choice, names in found.items()}

    def _table(self) -> str:
        shown = self.points
        if len(shown) > _MOST_ROWS:
            last = len(shown) - 1
            shown = [shown[round(i * last / (_MOST_ROWS - 1))] for i in range(_MOST_ROWS)]
        first = self.points[0].seconds
        lines = [f"{'peak':>12}  {'more time' if self.seconds is not None else 'operations':>10}  blocks checkpointed"]
        for point in shown:
            cost = f"{point.seconds:.3g}" if self.seconds is None else f"{point.seconds / first - 1:+.1%}"
            counts = Counter(choice for choice in point.choices.values() if choice != STORED)
            text = ", ".join(f"{count} {choice}" for choice, count in counts.items()) or "none"
            lines.append(f"{size(point.peak):>12}  {cost:>10}  {text}")
        return "\n".join(lines)

    def _block_of(self, module: str) -> str:
        return next((n for n in self.choices if module == n or module.startswith(f"{n}.")), "")

    def to_json(self) -> dict[str, Any]:
        """Returns the plan as data for JSON; apply() takes its "choices"."""
        return {
            "name": self.name,
            "choices": self.choices,
            "budget": self.budget,
            "promised": self.promised,
            "measured": self.measured,
            "plain": self.plain_peak,
            "least": self.least_peak,
            "seconds": self.seconds,
            "seconds_measured": self.seconds_measured,
            "cost": self.cost,
            "cost_unit": "operations" if self.seconds is None else "nanoseconds",
            "peak": {
                "plain": place(self.plain),
                "plan": place(self.seen),
                "composition": dict(composition(self.seen.curve, self.seen.curve.peak_at, self._block_of)),
            },
            "frontier": [{"peak": p.peak, "seconds": p.seconds, "choices": dict(p.choices)} for p in self.points],
            "blocks": [{"class": k.kind, "names": k.names, "keeps": k.keeps, "cost": k.cost} for k in self.kinds],
            "differs": self.differs,
            "notes": self.notes,
            "took": round(self.took, 2),
        }


def place(seen: Measured) -> str:
    """Returns in words where the peak of a step is."""
    curve: Curve = seen.curve
    mark = curve.peak_mark
    kind, _, number = mark.name.partition(" ")
    if number.isdigit():
        return f"in the {kind} of {seen.executions[int(number)]}"
    if mark.name == TAIL:
        return "after a block: in what follows the blocks, or the loss"
    words = {
        LOSS: "in the backward of what follows the blocks",
        END: "in the optimizer",
        "begin": "before the first block",
    }
    return words.get(mark.name, mark.name)


def size(count: int) -> str:
    """Returns bytes as text for people: 12.3 MB."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if abs(value) < 1000:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.2f} TB"


def shortened(names: list[str]) -> list[str]:
    """Returns names with consecutive numbers as ranges: layers.0 to layers.7."""
    found: list[str] = []
    runs: list[tuple[str, int, int]] = []
    for name in names:
        stem, _, number = name.rpartition(".")
        if number.isdigit() and runs and runs[-1][0] == stem and runs[-1][2] + 1 == int(number):
            runs[-1] = (stem, runs[-1][1], int(number))
        elif number.isdigit():
            runs.append((stem, int(number), int(number)))
        else:
            found.append(name)
    for stem, first, last in runs:
        dot = f"{stem}." if stem else ""
        found.append(f"{dot}{first}" if first == last else f"{dot}{first} to {dot}{last}")
    return found
