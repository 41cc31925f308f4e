"""Measures steps of a model under choices for its blocks, and finds the cheapest one within a budget."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from rematch.plan.choose import Choice, cheapest, frontier, lowest
from rematch.plan.options import CHECKPOINTED
from rematch.plan.report import BlockKind, Plan, Point
from rematch.plan.step import Measured, Step
from rematch.plan.table import Parts, Table, all_choices, designs

_UNITS = {"": 1, "B": 1}
for _power, _letter in enumerate("KMGT", 1):
    _UNITS[f"{_letter}B"], _UNITS[f"{_letter}IB"] = 1000**_power, 1024**_power
_REPAIRS = 6
"""How often a plan whose measured peak differs from the promised one is made again with what was measured."""
_MOST_POINTS = 30
"""How many points the table of peaks and times may have from zero to the plain peak."""
_PROGRESS_AFTER = 2.0


def bytes_of(budget: int | float | str, plain: int) -> int:
    """Returns the bytes of a number, "8GB", "500 MiB", or "60%" of the plain peak. Raises ValueError below one."""
    text = str(budget).strip().upper().replace(" ", "")
    number = text.rstrip("KMGTIB%")
    try:
        count = plain * float(number) / 100 if text.endswith("%") else float(number) * _UNITS[text[len(number) :]]
        # A large integer is no float.
        found = budget if isinstance(budget, int) else int(count)
    except (ValueError, KeyError, OverflowError):
        found = 0
    if found < 1:
        raise ValueError(f'[plan_model] budget is bytes, such as 8000000, "8GB", "500MiB", "60%"; got {budget!r}')
    return found


class Planner:
    """Measures steps of a model, and chooses for its blocks."""

    def __init__(self, step: Step, names: list[str], repeats: int, progress: bool) -> None:
        self._step, self._names, self._repeats, self._progress = step, names, max(1, repeats), progress
        self._options = list(step.options)
        self._begin, self._done, self._expected = time.monotonic(), 0, 1
        self._steps: dict[tuple[int, ...], Measured] = {}
        self._differs: dict[str, None] = {}
        self._notes: list[str] = []
        self._plain = step.bytes_of({})
        self._leave_out_what_runs_often()
        if not self._plain.in_order:
            self._notes.append(
                "backwards of blocks did not come in the reverse order of their forwards: they are no chain"
            )
        self._leave_out_options_that_fail()

    def _leave_out_what_runs_often(self) -> None:
        """Leaves out blocks that run several times a step, with one choice for all runs, if there are too many."""
        executions = self._plain.executions
        self._names = [name for name in self._names if name in executions]
        often = [name for name in self._names if executions.count(name) > 1]
        if not often or all_choices(len(self._names), len(self._options)) is not None:
            return
        self._notes.append(
            f"{often[0]} runs {executions.count(often[0])} times a step: {len(often)} such are left as is"
        )
        self._names = self._step.blocks = [name for name in self._names if name not in often]
        if not self._names:
            raise ValueError("[plan_model] all blocks run several times a step: name fewer, blocks=...")
        self._plain = self._step.bytes_of({})

    def _leave_out_options_that_fail(self) -> None:
        for number, option in reversed(list(enumerate(self._options))):
            try:
                self._measure([number] * len(self._names))
            except RuntimeError as error:
                if option == CHECKPOINTED:
                    raise
                self._steps.clear()
                self._notes.append(f"{option} is left out: {' '.join(str(error).split())[:160]}")
                self._options.remove(option)

    def plan(self, budget: int | float | str | None) -> Plan:
        """Returns the plan. Raises ValueError if no choice fits."""
        names, executions = self._names, self._plain.executions
        count = len(self._options)
        every = all_choices(len(names), count)
        table, peaks = Table(len(executions)), {}
        steps = every or list(designs(len(names), count))
        self._expected = len(steps) + (count + 1) * self._repeats + 1

        def note(chosen: tuple[int, ...], seen: Measured, beats: bool = False) -> None:
            peaks[chosen] = seen.curve.peak
            if every is None:
                table.note(chosen, seen, beats)

        for chosen in steps:
            self._tell()
            note(chosen, self._measure(chosen))
        costs, seconds = self._costs()

        def within(limit: int) -> Choice | None:
            if every is not None:
                fit = [Choice(_sum(costs, c), p, c) for c, p in peaks.items() if p <= limit]
                return min(fit, default=None)
            return cheapest(table.chain(costs), limit)

        plain_peak = self._plain.curve.peak
        apart = max(1, plain_peak // _MOST_POINTS)
        choices = frontier(within, apart)
        limit = choices[-1].peak if budget is None else bytes_of(budget, plain_peak)
        choice, seen = self._settle(within, limit, note, costs, choices[-1])
        differs = self._differing(seen)
        if others := [name for name in self._differs if name not in differs]:
            self._notes.append(f"other choices than this one change {others[0]} ({len(others)} gradients and buffers)")
        if choice not in choices:
            choices = frontier(within, apart)
        slower = seconds
        if seconds is not None and any(choice.options):
            slower = min(run.seconds for run in self._timed(choice.options))
        points = [
            Point(c.peak, c.cost if seconds is None else seconds + c.cost / 1e9, self._choices(c.options))
            for c in choices
        ]
        return Plan(
            name=type(self._step.model).__name__,
            choices=self._choices(choice.options),
            budget=limit,
            promised=choice.peak,
            measured=seen.curve.peak,
            plain=self._plain,
            seen=seen,
            seconds=seconds,
            cost=choice.cost,
            seconds_measured=slower,
            points=points,
            kinds=self._kinds(costs),
            differs=differs,
            notes=self._notes,
            step=self._step,
            took=time.monotonic() - self._begin,
        )

    def _settle(
        self,
        within: Callable[[int], Choice | None],
        limit: int,
        note: Callable[[tuple[int, ...], Measured, bool], None],
        costs: Sequence[Sequence[int]],
        least: Choice,
    ) -> tuple[Choice, Measured]:
        """Returns the best choice, and its measured step. If a peak is not as promised, plans again with what was
        measured; if that does not end, takes the cheapest of the measured choices that fit."""
        for _ in range(_REPAIRS):
            choice = within(limit)
            if choice is None:
                break
            choice = lowest(within, choice)
            self._tell()
            seen = self._measure(choice.options)
            if seen.curve.peak == choice.peak:
                return choice, seen
            self._notes.append(
                f"first promised {choice.peak:,} B, measured {seen.curve.peak:,} B: planned again with that"
            )
            note(choice.options, seen, True)
        measured = [Choice(_sum(costs, c), seen.curve.peak, c) for c, seen in self._steps.items()]
        fits = min((choice for choice in measured if choice.peak <= limit), default=None)
        if fits is None:
            raise ValueError(
                f"[plan_model] no choice fits into {limit:,} B: the least peak is {least.peak:,} B; the plain step has "
                f"{self._plain.curve.peak:,} B"
            )
        return fits, self._measure(fits.options)

    def _measure(self, chosen: Sequence[int]) -> Measured:
        """Returns the step with a choice, which is measured once."""
        key = tuple(chosen)
        if key not in self._steps:
            self._steps[key] = self._measured(self._choices(chosen)) if any(chosen) else self._plain
        return self._steps[key]

    def _measured(self, choices: Mapping[str, str]) -> Measured:
        try:
            seen = self._step.bytes_of(choices)
        except RuntimeError as error:
            # The first line of PyTorch's message says what is wrong, the rest how to debug it.
            text = str(error).split("\n")[0]
            raise RuntimeError(
                f"[plan_model] the step fails with blocks checkpointed ({text}); judge_model() says why"
            ) from error
        if seen.executions != self._plain.executions:
            raise ValueError("[plan_model] the blocks that run differ from step to step, though seeds are the same")
        self._differs.update(dict.fromkeys(self._differing(seen)))
        return seen

    def _differing(self, seen: Measured) -> list[str]:
        """Returns the gradients and buffers whose bits differ from those of the plain step."""
        return [name for name, value in self._plain.numbers.items() if seen.numbers.get(name) != value]

    def _choices(self, chosen: Sequence[int]) -> dict[str, str]:
        return {name: self._options[o] for name, o in zip(self._names, chosen, strict=True)}

    def _costs(self) -> tuple[list[list[int]], float | None]:
        """Returns for each block the cost of each option, in nanoseconds, or in operations on fake tensors; and the
        seconds of a plain step, or None."""
        names, executions = self._names, self._plain.executions
        kinds = {name: self._kind(name) for name in names}
        costs: list[list[int]] = [[] for _ in names]
        plain: list[Measured] = []
        for number in range(len(self._options)):
            if self._step.is_fake:
                of = self._operations(number)
            else:
                runs = self._timed([number] * len(names))
                plain = plain or runs
                of = dict.fromkeys(names, 0.0)
                for i, name in enumerate(executions):
                    more = min(r.forward[i] for r in runs) - min(r.forward[i] for r in plain)
                    of[name] += max(0.0, more) + min(r.again[i] for r in runs)
                # Blocks that are alike cost the same: what differs is noise.
                alike: dict[Any, list[float]] = {}
                for name in names:
                    alike.setdefault(kinds[name], []).append(of[name])
                of = {name: median(alike[kinds[name]]) * 1e9 for name in names}
                # A step is slower by more than its recomputations: random states are kept and put back,
                # tensors are packed. Blocks share it as they share the rest.
                slower = min(r.seconds for r in runs) - min(r.seconds for r in plain)
                share = max(1.0, slower * 1e9 / max(1.0, sum(of.values())))
                of = {name: cost * share for name, cost in of.items()}
            for i, name in enumerate(names):
                costs[i].append(0 if number == 0 else max(1, int(of[name])))
        return costs, min((run.seconds for run in plain), default=None)

    def _timed(self, chosen: Sequence[int]) -> list[Measured]:
        """Returns the times of steps with a choice."""
        runs = []
        for _ in range(self._repeats):
            self._tell()
            runs.append(self._step.times_of(self._choices(chosen)))
        return runs

    def _operations(self, option: int) -> dict[str, float]:
        seen = self._measure([option] * len(self._names))
        found = dict.fromkeys(self._names, 0.0)
        for mark, count in seen.curve.operations.items():
            kind, _, number = mark.partition(" ")
            if kind == "backward":
                found[seen.executions[int(number)]] += count
        return found

    def _kind(self, name: str) -> Any:
        block = self._step.model.get_submodule(name)
        return type(block).__name__, tuple((n, tuple(p.shape)) for n, p in block.named_parameters())

    def _kinds(self, costs: Sequence[Sequence[int]]) -> list[BlockKind]:
        """Groups blocks that are alike, with what one of them keeps and what running it again costs, by option."""
        executions = self._plain.executions
        found: dict[Any, BlockKind] = {}
        for i, name in enumerate(self._names):
            kind = self._kind(name)
            if kind in found:
                found[kind].names.append(name)
                continue
            # The first block also keeps what comes before it: one in the middle says more.
            alike = [n for n in self._names if self._kind(n) == kind]
            place = executions.index(alike[len(alike) // 2])
            keeps = {}
            for o, option in enumerate(self._options):
                parts = Parts(self._measure([o] * len(self._names)).curve, len(executions))
                keeps[option] = parts.levels[0][place + 1] - parts.levels[0][place]
            found[kind] = BlockKind(kind[0], [name], keeps, dict(zip(self._options, costs[i], strict=True)))
        return list(found.values())

    def _tell(self) -> None:
        self._done += 1
        passed = time.monotonic() - self._begin
        if self._progress and passed > _PROGRESS_AFTER:
            left = passed / self._done * max(0, self._expected - self._done)
            print(f"plan: step {self._done} of about {self._expected}, about {left:.0f} s left", file=sys.stderr)


def _sum(costs: Sequence[Sequence[int]], chosen: Sequence[int]) -> int:
    return sum(cost[o] for cost, o in zip(costs, chosen, strict=True))
