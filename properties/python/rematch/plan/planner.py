"""Measures steps of a model under choices for its blocks, and finds the cheapest one within a budget."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from rematch.plan.choose import Choice, frontier, lowest
from rematch.plan.options import CHECKPOINTED, JOINED, STORED, joins
from rematch.plan.policies import ladder
from rematch.plan.report import BlockKind, Plan, Point, outside
from rematch.plan.step import Measured, Step
from rematch.plan.table import Group, Parts, Table, all_choices, in_groups, singly
from rematch.plan.times import Interval, compare
from rematch.plan.usual import Saved, Usual, compiled_steps, usual_choices

_UNITS = {"": 1, "B": 1}
for _power, _letter in enumerate("KMGT", 1):
    _UNITS[f"{_letter}B"], _UNITS[f"{_letter}IB"] = 1000**_power, 1024**_power
_REPAIRS = 6
"""How often a plan whose measured peak differs from the promised one is made again with what was measured."""
_MOST_POINTS = 8
"""About how many points the table of peaks and times has: each of them is timed."""
_MOST_COMPARED = 30
"""The same of choices among which compiled steps find a plan that holds no more than they do."""
_RUNS = 3
"""How many steps with one choice for all blocks say what share each kind of block has in its cost."""
_WORTH = 50
"""A length is tried if it seems to save more than one of so many parts of the plain peak."""
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

    def __init__(self, step: Step, names: list[str], own_policies: bool, seconds: float, progress: bool) -> None:
        """`own_policies`: look for policies within blocks. `seconds`: the most that each round of times takes."""
        self._step, self._names, self._seconds, self._progress = step, names, seconds, progress
        self._options: list[str | Mapping[str, str]] = list(step.options)
        """A choice's text, or texts by the block's name."""
        self._begin, self._done, self._expected = time.monotonic(), 0, 1
        self._steps: dict[tuple[int, ...], Measured] = {}
        self._differs: dict[str, None] = {}
        self._notes: list[str] = []
        self._is_one_choice = False
        """All blocks run several times a step, and have the same choice."""
        self._plain = step.bytes_of({})
        self._leave_out_what_runs_often()
        if not self._plain.in_order:
            self._notes.append(
                "backwards of blocks did not come in the reverse order of their forwards: they are no chain"
            )
        if own_policies and not step.is_fake:
            self._add_policies()
        self._leave_out_options_that_fail()

    def _add_policies(self) -> None:
        """Adds policies that keep the results of operators, made for each kind of block."""
        try:
            seen = self._step.operators_of(dict.fromkeys(self._names, CHECKPOINTED))
        except Exception:
            # Measuring its bytes fails likewise, and says so.
            return
        rungs: dict[Any, list[str]] = {}
        for name in self._names:
            kind = self._kind(name)
            if kind not in rungs:
                alike = [i for i, n in enumerate(seen.executions) if self._kind(n) == kind]
                rungs[kind] = ladder(seen.ran[alike[len(alike) // 2]])
        for number in range(max(map(len, rungs.values()))):
            of = {name: (rungs[self._kind(name)] or [CHECKPOINTED]) for name in self._names}
            self._options.append({name: texts[min(number, len(texts) - 1)] for name, texts in of.items()})

    def _leave_out_what_is_worse(
        self,
        kinds: Sequence[BlockKind],
        more: Sequence[Interval],
        costs: Sequence[Sequence[int]],
        operations: Sequence[dict[str, float]],
    ) -> tuple[list[Interval], list[list[int]], list[dict[str, float]]]:
        """Leaves out options that keep no less of each kind of block than another one, and surely take longer."""
        keeps = [[kind.keeps[_text(o, kind.names[0])] for o in self._options] for kind in kinds]

        def is_worse(option: int, other: int) -> bool:
            return more[option].low > more[other].high and all(of[option] >= of[other] for of in keeps)

        every = range(len(self._options))
        good = [o for o in every if o == 0 or not any(is_worse(o, other) for other in every if other)]
        at = {o: i for i, o in enumerate(good)}
        self._options = [self._options[o] for o in good]
        kept = {key: seen for key, seen in self._steps.items() if all(o in at for o in key)}
        self._steps = {tuple(at[o] for o in key): seen for key, seen in kept.items()}
        return [more[o] for o in good], [[of[o] for o in good] for of in costs], [operations[o] for o in good]

    def _leave_out_what_runs_often(self) -> None:
        """Leaves out blocks that run several times a step, with one choice for all runs, if there are too many. If all
        do, they get one choice together."""
        executions = self._plain.executions
        self._names = [name for name in self._names if name in executions]
        often = [name for name in self._names if executions.count(name) > 1]
        if not often or all_choices(len(self._names), len(self._options)) is not None:
            return
        runs = f"{often[0]} runs {executions.count(often[0])} times a step"
        self._is_one_choice = len(often) == len(self._names)
        if self._is_one_choice:
            self._notes.append(f"{runs}, and all other blocks several times: they get one choice together")
            return
        self._notes.append(f"{runs}: {len(often)} such are left as is")
        self._names = self._step.blocks = [name for name in self._names if name not in often]
        self._plain = self._step.bytes_of({})

    def _leave_out_options_that_fail(self) -> None:
        for number, option in reversed(list(enumerate(self._options))):
            try:
                self._measure([number] * len(self._names))
            except RuntimeError as error:
                if option == CHECKPOINTED:
                    raise
                self._steps.clear()
                text = _text(option, self._names[0])
                self._notes.append(f"{text} is left out: {' '.join(str(error).split())[:160]}")
                self._options.remove(option)

    def plan(self, budget: int | float | str | None, compared: bool = False) -> Plan:
        """Returns the plan; `compared`: beside what people do without one. Raises ValueError if no choice fits."""
        names, executions = self._names, self._plain.executions
        self._expected = 8 * len(self._options) + 30
        operations = [self._operations(number) for number in range(len(self._options))]
        more, costs, seconds = self._costs(operations)
        kinds = self._kinds(costs)
        if seconds is not None:
            more, costs, operations = self._leave_out_what_is_worse(kinds, more, costs, operations)
        count = len(self._options)
        alike = [(o,) * len(names) for o in range(count)] if self._is_one_choice else None
        every = alike or all_choices(len(names), count)
        peaks: dict[tuple[int, ...], int] = {}
        tables: list[Table] = []
        if every is None:
            tables = [Table(singly(len(names), count)), *map(Table, self._segments())]
        if len(tables) > 1:
            again = self._options.index(CHECKPOINTED)
            self._options.append(JOINED)
            costs = [[*of, of[again]] for of in costs]
            operations.append(operations[again])
        steps = every or list(dict.fromkeys(chosen for table in tables for chosen in table.designs()))
        self._expected = self._done + len(steps) + 16

        def note(chosen: tuple[int, ...], seen: Measured, beats: bool = False) -> None:
            peaks[chosen] = seen.curve.peak
            for table in tables:
                table.note(chosen, seen, beats)

        for chosen in steps:
            self._tell()
            note(chosen, self._measure(chosen))

        def within(limit: int) -> Choice | None:
            if every is not None:
                fit = [Choice(_sum(costs, c), p, c) for c, p in peaks.items() if p <= limit]
                return min(fit, default=None)
            found = [table.cheapest(costs, limit) for table in tables]
            return min((choice for choice in found if choice is not None), default=None)

        plain_peak = self._plain.curve.peak
        saved = plain_peak - min(peaks.values())
        apart = max(1, saved // _MOST_POINTS)
        choices = frontier(within, apart)
        limit = choices[-1].peak if budget is None else bytes_of(budget, plain_peak)
        choice, seen = self._settle(within, limit, note, costs, choices[-1])
        differs = self._differing(seen)
        if others := [name for name in self._differs if name not in differs]:
            self._notes.append(f"other choices than this one change {others[0]} ({len(others)} gradients and buffers)")
        if choice not in choices:
            choices = sorted({*frontier(within, apart), choice})
        computed = max(1, self._plain.curve.computed)  # The allocator of a device counts none.
        slower: dict[Choice, Interval] = {}
        if seconds is not None:
            # The plan's own time is known best.
            for some in ([choice], [c for c in choices if c != choice]):
                timed = [c for c in some if any(c.options)]
                timers = [self._timer(self._choices(c.options)) for c in timed]
                slower.update(zip(timed, compare(self._timer({}), timers, self._until()), strict=True))
        points = [
            Point(
                c.peak,
                slower.get(c),
                sum(operations[o][name] for name, o in zip(names, c.options, strict=True)) / computed,
                self._choices(c.options),
            )
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
            operations=sum(seen.curve.operations.values()) / computed,
            slower=slower.get(choice),
            points=points,
            kinds=kinds,
            not_searched=outside(self._plain, names),
            differs=differs,
            notes=self._notes,
            usual=self._usual(within, frontier(within, max(1, saved // _MOST_COMPARED)), costs) if compared else [],
            step=self._step,
            took=time.monotonic() - self._begin,
        )

    def _segments(self) -> list[list[Group]]:
        """Returns the blocks in groups that may be segments, for each length that seems worth it."""
        names = self._names
        if self._plain.executions != names or CHECKPOINTED not in self._options:
            return []
        numbers = [self._options.index(text) for text in (STORED, CHECKPOINTED)]
        stored, inputs = (
            Parts(self._measure([o] * len(names)).curve, singly(len(names), 1)).levels[0] for o in numbers
        )
        worth = self._plain.curve.peak // _WORTH
        return in_groups(
            joins(self._step.model, names, self._plain.called), stored, inputs, worth, (*numbers, len(self._options))
        )

    def _usual(
        self, within: Callable[[int], Choice | None], best: Sequence[Choice], costs: Sequence[Sequence[int]]
    ) -> list[Usual]:
        """Measures what people do without a plan, and for each the plan within its bytes."""
        step = self._step
        if step.is_fake:
            self._notes.append("on fake tensors nothing is timed, and so nothing is compared")
            return []
        rows, planned, timers, compiled, slower = [], [], [], [], []
        # What a step costs, by the costs of its choices, and the bytes that it holds.
        held = [(_sum(costs, key), seen.held, self._choices(key)) for key, seen in self._steps.items()]
        for choice in best:
            self._tell()
            held.append((choice.cost, self._measure(choice.options).held, self._choices(choice.options)))
        for name, choices in usual_choices(
            self._names, step.options, all(joins(step.model, self._names, self._plain.called)[1:])
        ):
            try:
                self._tell()
                seen = step.bytes_of(choices)
            except Exception as error:
                self._notes.append(f"{name} is not compared: {' '.join(str(error).split())[:160]}")
                continue
            fit = within(seen.curve.peak)
            rows.append((name, seen.curve.peak, seen.held))
            planned.append(None if fit is None else self._choices(fit.options))
            timers.append(self._timer(choices))
        eager = len(rows)
        try:
            for name, call in compiled_steps(step.model).items():
                self._tell()
                saved = Saved(call, step.model)
                step.seconds_of({}, saved)
                compiled.append(self._timer({}, call=call))
                if len(compiled) > 1:
                    rows.append((name, None, saved.bytes))
                    fits = [(cost, choices) for cost, count, choices in held if count <= saved.bytes]
                    planned.append(min(fits, key=lambda fit: fit[0])[1] if fits else None)
            slower = compare(compiled[0], compiled[1:], self._until())
        except Exception as error:
            self._notes.append(f"the step is not compared compiled: {' '.join(str(error).split())[:160]}")
            del rows[eager:], planned[eager:]
        timers += [self._timer(choices) for choices in planned if choices is not None]
        took = compare(self._timer({}), timers, self._until())
        slower = took[:eager] + slower
        plans = iter(took[eager:])
        return [
            Usual(*row, of, None if choices is None else next(plans))
            for row, of, choices in zip(rows, slower, planned, strict=True)
        ]

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
        except Exception as error:
            # The first line of PyTorch's message says what is wrong, the rest how to debug it.
            text = f"{type(error).__name__}: {error}".split("\n")[0]
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
        return {name: _text(self._options[o], name) for name, o in zip(self._names, chosen, strict=True)}

    def _costs(self, operations: Sequence[Mapping[str, float]]) -> tuple[list[Interval], list[list[int]], float | None]:
        """Returns how much longer a step takes with each option for all blocks; for each block the cost of each option,
        in nanoseconds, or in operations on fake tensors; and the seconds of a plain step, or None."""
        names, executions = self._names, self._plain.executions
        if self._step.is_fake:
            return [], [[0, *(max(1, int(of[name])) for of in operations[1:])] for name in names], None
        every = [[number] * len(names) for number in range(len(self._options))]
        plain: list[float] = []
        others = [self._timer(self._choices(c)) for c in every[1:]]
        more = [Interval(), *compare(self._timer({}, plain), others, self._until())]
        seconds = median(plain)
        kinds = {name: self._kind(name) for name in names}
        unlike = len(set(kinds.values())) > 1
        runs = [[self._step.times_of(self._choices(c)) for _ in range(_RUNS if unlike else 1)] for c in every]
        costs: list[list[int]] = [[0] for _ in names]
        for slower, seen in zip(more[1:], runs[1:], strict=True):
            of = dict.fromkeys(names, 0.0)
            for i, name in enumerate(executions):
                longer = median(r.forward[i] for r in seen) - median(r.forward[i] for r in runs[0])
                of[name] += max(0.0, longer) + median(r.again[i] for r in seen)
            # Blocks that are alike cost the same: what differs is noise.
            alike: dict[Any, list[float]] = {}
            for name in names:
                alike.setdefault(kinds[name], []).append(of[name])
            share = {name: median(alike[kinds[name]]) for name in names}
            # A step is slower by more than its recomputations: random states are kept and put back, tensors are packed.
            # Blocks share it as they share the rest.
            scale = max(0.0, slower.middle) * seconds * 1e9 / max(1e-9, sum(share.values()))
            for i, name in enumerate(names):
                costs[i].append(max(1, int(share[name] * scale)))
        return more, costs, seconds

    def _timer(
        self, choices: Mapping[str, str], into: list[float] | None = None, call: Callable[..., Any] | None = None
    ) -> Callable[[], float]:
        """Returns a function that runs a step with `choices`, of `call` if that is not the model, and returns its
        seconds, which are put `into` a list."""

        def run() -> float:
            self._tell()
            seconds = self._step.seconds_of(choices, call)
            if into is not None:
                into.append(seconds)
            return seconds

        return run

    def _until(self) -> Callable[[], bool]:
        """Returns whether the time for a round of times is spent."""
        end = self._step.now() + self._seconds
        return lambda: self._step.now() > end

    def _operations(self, option: int) -> dict[str, float]:
        """Returns what an option recomputes of each block, in operations."""
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
            options = [_text(option, name) for option in self._options]
            for o, option in enumerate(options):
                parts = Parts(self._measure([o] * len(self._names)).curve, singly(len(executions), 1))
                keeps[option] = parts.levels[0][place + 1] - parts.levels[0][place]
            found[kind] = BlockKind(kind[0], [name], keeps, dict(zip(options, costs[i], strict=True)))
        return list(found.values())

    def _tell(self) -> None:
        self._done += 1
        passed = time.monotonic() - self._begin
        if self._progress and passed > _PROGRESS_AFTER:
            left = passed / self._done * max(0, self._expected - self._done)
            print(f"plan: step {self._done} of about {self._expected}, about {left:.0f} s left", file=sys.stderr)


def _text(option: str | Mapping[str, str], name: str) -> str:
    return option if isinstance(option, str) else option[name]


def _sum(costs: Sequence[Sequence[int]], chosen: Sequence[int]) -> int:
    return sum(cost[o] for cost, o in zip(costs, chosen, strict=True))
