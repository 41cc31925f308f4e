"""A plan, its report, the chart of its bytes, and the snapshot of its memory for PyTorch's viewer."""

import pickle
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from rematch.journal.journal import FORWARD
from rematch.journal.storages import Allocation, Curve, composition
from rematch.plan.code import code_of
from rematch.plan.options import CHECKPOINTED, JOINED, STORED, Applied
from rematch.plan.policies import KEEPS
from rematch.plan.step import END, LOSS, TAIL, Measured, Step
from rematch.plan.times import Interval
from rematch.plan.usual import Usual

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


@dataclass(frozen=True)
class Point:
    """A choice that no other one beats."""

    peak: int
    """The bytes of its peak."""
    slower: Interval | None
    """How much longer its step takes, in pairs of steps; None on fake tensors, and if all blocks are stored."""
    operations: float
    """The operations that it recomputes, as a share of those of a plain step."""
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
    """The choice for each block by name: "stored", "checkpointed", "joined" to the segment of the block before it, the
    name of a policy, or the operators whose results are kept."""
    budget: int
    promised: int
    """The bytes of the peak, computed from measurements of other choices."""
    measured: int
    """The bytes of the peak of a step with this plan."""
    plain: Measured
    seen: Measured
    seconds: float | None
    """The seconds of a plain step, which on the CPU are those that the process computed; None on fake tensors."""
    operations: float
    """The operations that a step with this plan recomputes, as a share of those of a plain step."""
    slower: Interval | None
    """How much longer a step with this plan takes than a plain one, in pairs of steps; None on fake tensors, and if all
    blocks are stored."""
    points: list[Point]
    kinds: list[BlockKind]
    not_searched: list[tuple[str, int]]
    """Submodules outside of the blocks, and the bytes that they keep: of those that keep a hundredth of the peak."""
    differs: list[str]
    """Gradients and buffers whose bits differ from those of the plain step."""
    notes: list[str]
    usual: list[Usual]
    """What people do without a plan, if it was compared."""
    step: Step = field(repr=False)
    took: float = 0.0

    @property
    def plain_peak(self) -> int:
        """The bytes of the peak of the plain step."""
        return self.plain.curve.peak

    @property
    def least_peak(self) -> int:
        """The bytes of the least peak that any choice for these blocks has."""
        return min(point.peak for point in self.points)

    def switch(self, model: Any, on: bool) -> None:
        """Puts the plan on a model, or takes it off; it fits judge_model(switch=)."""
        applied = model.__dict__.pop("_rematch_plan", None)
        if applied is not None:
            applied.remove()
        if on:
            model.__dict__["_rematch_plan"] = Applied(model, self.choices, self.step.options)

    def code(self, even_if_it_differs: bool = False) -> str:
        """Returns a module that needs PyTorch alone, whose apply(model) checkpoints these blocks. Raises ValueError for
        a policy of your own and, unless told, for a plan whose step differed from the plain one."""
        self.refuse_if_it_differs("code", even_if_it_differs)
        peaks = f"peak {size(self.plain_peak)} -> {size(self.measured)}"
        return code_of(self.step.model, self.choices, f"Checkpoints blocks of {self.name}: {peaks}")

    def refuse_if_it_differs(self, what: str, told: bool) -> None:
        """Raises ValueError if the step differed from the plain one, unless `told` that it may."""
        if self.differs and not told:
            raise ValueError(
                f"[{what}] with this plan {self.differs[0]} differs from the plain step; judge_model(switch=plan.switch) "
                "says why; even_if_it_differs=True takes it as it is"
            )

    def snapshot(self, path: str, plain: bool = False) -> None:
        """Writes the memory of a step with the plan, or of the plain step if `plain`, for PyTorch's viewer
        (docs.pytorch.org/memory_viz, or python -m torch.cuda._memory_viz)."""
        write_snapshot(path, (self.plain if plain else self.seen).curve)

    def chart(self, width: int = 72, height: int = 10) -> str:
        """Returns a picture of the bytes over the step, plain and with the plan."""
        return chart_of({"plain": self.plain.curve, "with the plan": self.seen.curve}, width, height)

    def __str__(self) -> str:
        parts = [self._headline(), self._warning(), self._where(), self._blocks()]
        parts += [self._table(), self._alike(), self._usual(), self._written()]
        return "\n".join([*filter(None, parts), *(f"note: {note}" for note in self.notes)])

    def _headline(self) -> str:
        chosen = sum(choice != STORED for choice in self.choices.values())
        return (
            f"{self.name}: {chosen} of {len(self.choices)} blocks checkpointed; peak {size(self.plain_peak)} -> "
            f"{size(self.measured)} (promised {size(self.promised)}, budget {size(self.budget)}){self._slower()}"
        )

    def _slower(self) -> str:
        more = f", {self.operations:+.0%} operations"
        return more if self.slower is None else f", time {self.slower}{more}"

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
        lines.append(f"checkpointing these blocks can save {size(saved)} at most{self._why_nothing(saved)}")
        if self.not_searched:
            rest = ", ".join(f"{name} ({size(count)})" for name, count in self.not_searched[:3])
            lines.append(f"not searched, though they keep bytes for the backward: {rest}; add them to blocks=")
        return "\n".join(lines)

    def _why_nothing(self, saved: int) -> str:
        if saved > self.plain_peak // 100:
            return f" ({saved / self.plain_peak:.0%} of the peak)"
        return f": the peak is {place(self.plain)}, where what these blocks keep is only a small part"

    def _blocks(self) -> str:
        lines = ["blocks                                   bytes that one keeps (with its output), and its cost"]
        unit = "ops" if self.seconds is None else "ms"
        for kind in self.kinds:
            names = kind.names[0] if len(kind.names) == 1 else f"{len(kind.names)} like {kind.names[0]}"
            for option, kept in kind.keeps.items():
                cost = f"{kind.cost[option]:.3g}" if self.seconds is None else f"{kind.cost[option] / 1e6:.1f}"
                title = f"{kind.kind} ({names})" if option == STORED else ""
                lines.append(f"  {title:<38} {_short(option):<16} {size(kept):>10}  {cost:>9} {unit}")
        lines += [f"  {_short(option):<16} {', '.join(names)}" for option, names in self._chosen().items()]
        lines += [f"  {_short(option)} {option}" for option in self._chosen() if option.startswith(KEEPS)]
        lines += ["  joined blocks are in one segment with the block before them"] * (JOINED in self._chosen())
        return "\n".join(lines)

    def _chosen(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name, choice in self.choices.items():
            found.setdefault(choice, []).append(name)
        return {choice: shortened(names) for choice, names in found.items()}

    def _table(self) -> str:
        lines = [f"{'peak':>12}  {'operations':>10}  {'more time':<22}  blocks"]
        for point in self.points:
            counts = Counter(_short(choice) for choice in point.choices.values() if choice != STORED)
            text = ", ".join(f"{count} {choice}" for choice, count in counts.items()) or "all stored"
            time = "" if point.slower is None else str(point.slower)
            lines.append(f"{size(point.peak):>12}  {point.operations:>+10.0%}  {time:<22}  {text}")
        return "\n".join(lines)

    def _alike(self) -> str:
        """Says which choices take as long as this one, as far as is known."""
        chosen = self.slower
        if chosen is None:
            return ""
        if not chosen.is_sure:
            return f"{chosen.pairs} pairs of steps are too few for a reliable interval: a larger seconds= gives more"
        alike = [p.peak for p in self.points if p.slower is not None and p.slower.meets(chosen)]
        if len(alike) < 2:
            return ""
        least, most = size(min(alike)), size(max(alike))
        return f"{len(alike)} choices, from {least} to {most}, cannot be told apart from this one by time"

    def _usual(self) -> str:
        if not self.usual:
            return ""
        lines = [f"{'without a plan':<32}  {'peak':>10}  {'held':>10}  {'more time':<22}  plan within the same bytes"]
        for one in self.usual:
            peak = "" if one.peak is None else size(one.peak)
            planned = "none" if one.planned is None else str(one.planned)
            ahead = "  AHEAD of the plan" if one.is_ahead else ""
            lines.append(f"{one.name:<32}  {peak:>10}  {size(one.held):>10}  {one.slower!s:<22}  {planned}{ahead}")
        if not all(one.slower.is_sure for one in self.usual):
            lines.append("fewer than seven pairs of steps give no reliable interval: a larger seconds= gives more")
        return "\n".join(lines)

    def _written(self) -> str:
        """Says how people write this plan elsewhere, where it can be said."""
        found = [choice == CHECKPOINTED for choice in self.choices.values()]
        if not set(self.choices.values()) <= {STORED, CHECKPOINTED}:
            return ""
        for n in range(1, len(found) + 1):
            # torchtitan counts blocks from one, transformers from zero.
            from_one, from_zero = ([(i + first) % n == 0 for i in range(len(found))] == found for first in (1, 0))
            mode = '"full"' if n == 1 else f'"selective", selective_ac_option = "{n}"'
            call = (
                "gradient_checkpointing_enable()" if n == 1 else f"activation_checkpointing_enable(every_n_layers={n})"
            )
            words = [f"in torchtitan: activation_checkpoint.mode = {mode}"] * from_one
            words += [f"in transformers: model.{call}"] * from_zero
            if words:
                return "; ".join(words)
        return ""

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
            "slower": self.slower and asdict(self.slower),
            "operations": self.operations,
            "peak": {
                "plain": place(self.plain),
                "plan": place(self.seen),
                "composition": dict(composition(self.seen.curve, self.seen.curve.peak_at, self._block_of)),
            },
            "frontier": [asdict(point) for point in self.points],
            "blocks": [{"class": k.kind, "names": k.names, "keeps": k.keeps, "cost": k.cost} for k in self.kinds],
            "usual": [asdict(one) | {"is_ahead": one.is_ahead} for one in self.usual],
            "written": self._written(),
            "not_searched": dict(self.not_searched),
            "differs": self.differs,
            "notes": self.notes,
            "took": round(self.took, 2),
        }


def _short(option: str) -> str:
    """Returns a choice in a few words: how many results a policy keeps."""
    if not option.startswith(KEEPS):
        return option
    return f"keeps {sum(word.isdigit() for word in option.replace(',', ' ').split())} results"


def outside(seen: Measured, blocks: Sequence[str]) -> list[tuple[str, int]]:
    """Returns submodules outside of the blocks that keep at least a hundredth of the peak for the backward, with their
    bytes, the largest first: the outermost ones that hold no block."""
    curve = seen.curve
    at = next((mark.at for mark in curve.marks if mark.name == LOSS), 0)
    found: Counter[str] = Counter()
    for one in curve.allocations:
        words = one.module.split(".")
        if one.phase != FORWARD or not one.live(at) or not one.module or any(_lies(one.module, b) for b in blocks):
            continue
        outer = (".".join(words[:i]) for i in range(1, len(words) + 1))
        free = next((name for name in outer if not any(_lies(b, name) for b in blocks)), None)
        if free is not None:
            found[free] += one.bytes
    return [(name, count) for name, count in found.most_common() if count * 100 >= curve.peak]


def _lies(name: str, within: str) -> bool:
    return name == within or name.startswith(f"{within}.")


def place(seen: Measured) -> str:
    """Returns in words where the peak of a step is."""
    curve: Curve = seen.curve
    mark = curve.peak_mark
    kind, _, number = mark.name.partition(" ")
    if number.isdigit():
        return f"in the {kind} of {seen.executions[int(number)]}"
    if mark.name == TAIL:
        return "after a block, before the next one begins: in layers outside of the blocks, or in the loss"
    words = {
        LOSS: "in the backward of the loss and of the layers after the blocks",
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
