"""What watch() finds: where something differed, and of which kind it is."""

from dataclasses import dataclass, field
from typing import Any

import torch

from rematch.journal.comparison import Comparison, Difference
from rematch.journal.computations import Entry
from rematch.journal.twice import ONCE, Repeated

WRITTEN, RANDOM, APART = "a state was written", "other random numbers", "ranks differ"
OTHERWISE, UNDECIDED = "the recomputation gets something else", "not decided"
"""Kinds of findings beside those of operators that ran twice. What is not decided is a difference in an operator that
did not run again yet on the same tensors."""


@dataclass
class Finding:
    """What differed at one place. It is noted once, however often it differs there again."""

    step: int
    """The first step in which it differs from its forward; steps count from 1."""
    rank: int | None
    """The rank in torch.distributed; None if that is not used."""
    module: str
    operator: str
    """The operator that differs first, and the module in which it ran."""
    element: int | None
    """The first element that differs, if it is known."""
    comparison: Comparison | None = None
    """How the recomputation compares with its forward; None if an operator differs that ran twice."""
    repeated: Repeated | None = None
    """How executions of the operator on the same tensors differ, if it ran several times."""
    phase: str = "recomputation"
    """When it ran: "forward", "backward", "recomputation", "optimizer", or between these."""
    times: int = 1
    recurs: bool | None = None
    """Whether it differed in the next watched step as well, though the operator computed the same each time that it ran
    on the same tensors; None if that is not known."""
    writers: list[str] = field(default_factory=list)
    """What wrote the states, as far as a later step shows."""
    ranks: tuple[int, ...] = ()
    """Ranks that have other bits than most, if ranks were compared."""

    @property
    def kind(self) -> str:
        """What it comes from, as far as it is known."""
        if self.ranks:
            return APART
        if self.repeated is not None:
            return self.repeated.kind
        assert self.comparison is not None
        if self.comparison.states:
            return WRITTEN
        if self.comparison.first is not None and self.comparison.first.draws:
            return RANDOM
        if self.recurs is None and self.comparison.first is not None:
            return UNDECIDED
        return ONCE if self.recurs is False else OTHERWISE

    @property
    def is_open(self) -> bool:
        """Whether another step can say more."""
        if self.comparison is not None and self.kind == WRITTEN:
            return any(state.name not in self.comparison.advanced for state in self.comparison.states)
        return self.kind == UNDECIDED

    @classmethod
    def of(cls, comparison: Comparison, step: int, rank: int | None) -> "Finding":
        """Returns the finding of a comparison in which something differs."""
        leading = comparison.first or comparison.astray or comparison.states[0]
        element = leading.element if isinstance(leading, Difference) else None
        return cls(step, rank, leading.module, leading.operator, element, comparison)

    def added_to(self, findings: "list[Finding]") -> "Finding | None":
        """Adds the finding to `findings`; if one of the same place is there, counts that one up and returns it."""
        known = next((f for f in findings if (f.module, f.operator) == (self.module, self.operator)), None)
        if known is None:
            findings.append(self)
        else:
            known.times += 1
            known.repeated = known.repeated or self.repeated
        return known

    def __str__(self) -> str:
        where = f"step {self.step}" + ("" if self.rank is None else f", rank {self.rank}")
        lines = [] if self.comparison is None else [_text(self.comparison)]
        if self.ranks:
            lines.append(
                f"{self.module}: ranks {', '.join(map(str, self.ranks))} have another {self.operator} than most"
            )
        elif self.repeated is not None:
            lines.append(f"{self.module or 'the model'}: {self.operator}, {self.phase}: {self.repeated}")
        elif self.recurs is not None and self.kind in (ONCE, OTHERWISE):
            again = "so it does in the next step" if self.recurs else "in the next step it does not"
            lines.append(f"{again}, and {self.operator} computes the same on the same tensors: {self.kind}")
        lines += [f"in a later step {writer}" for writer in self.writers]
        return f"rematch.watch, {where}: " + "\n  ".join(lines)


def _text(comparison: Comparison) -> str:
    lines = []
    first, states = comparison.first, list(comparison.states)
    if first is not None:
        lines.append(f"{_at(first)} differs in the recomputation: {first.values}")
        if first.draws:
            lines.append("it draws random numbers: with preserve_rng_state=False, or from a generator of its own?")
    elif comparison.astray is not None:
        lines.append(f"{_at(comparison.astray)} runs in the recomputation only")
    else:
        lines.append(f"{_at(states[0])} reads a changed {_state(states.pop(0), comparison)}")
    lines += [f"{state.module or 'the model'} reads a changed {_state(state, comparison)}" for state in states]
    if comparison.route is not None:
        lines.append(f"then {_at(comparison.route)} differs: {comparison.route.values}")
    return "\n  ".join(lines)


def _state(state: Difference, comparison: Comparison) -> str:
    twice = state.name in comparison.advanced
    why = "the forward itself writes it, so it is written twice" if twice else "it was written since"
    return f"{state.name} in the recomputation: {state.values}; {why}"


def _at(found: Difference | Entry) -> str:
    return f"{found.module or 'the model'}: {found.operator}"


def rank() -> int | None:
    """Returns the rank in torch.distributed; None if that is not used."""
    group = torch.distributed
    return group.get_rank() if group.is_available() and group.is_initialized() else None
