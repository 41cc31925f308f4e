"""Policies that keep the results of some operators of a block: those whose recomputation takes longest for their bytes.

A policy is a text, such as "keeps aten.addmm.default 0 2, aten.gelu.default 0": which executions of an operator within
the block, counted from 0. apply() makes a policy function of it, in PyTorch's terms.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

from rematch.frameworks.pytorch.operators import makes_values

KEEPS = "keeps "
_SHARES = (0.5, 0.8)
"""The shares of the time of all operators that may be kept that the policies of a block save."""


@dataclass(frozen=True)
class Ran:
    """An operator of a recomputation: which execution of it in its block, the bytes of its result, its seconds."""

    op: Any
    number: int
    bytes: int
    seconds: float
    written: bool = False
    """Whether a later operator writes into the result."""


def ladder(ran: Sequence[Ran]) -> list[str]:
    """Returns policies for a block of which these operators are recomputed, from few bytes to many. What is drawn is
    not kept: the draws behind it would be others."""
    ran = [one for one in ran if one.bytes and not one.written and _may_be_kept(one.op)]
    total, saved = sum(one.seconds for one in ran), 0.0
    kept: list[Ran] = []
    found: list[str] = []
    shares = list(_SHARES)
    for one in sorted(ran, key=lambda o: -o.seconds / o.bytes):
        kept.append(one)
        saved += one.seconds
        if shares and saved >= shares[0] * total:
            found.append(written(kept))
            shares = [share for share in shares if saved < share * total]
    return found


def _may_be_kept(op: Any) -> bool:
    return isinstance(op, torch._ops.OpOverload) and makes_values(op)


def written(kept: Iterable[Ran]) -> str:
    """Returns, as a text, the policy that keeps these results."""
    of: dict[str, list[int]] = {}
    for one in sorted(kept, key=lambda o: (str(o.op), o.number)):
        of.setdefault(str(one.op), []).append(one.number)
    return KEEPS + ", ".join(f"{op} {' '.join(map(str, numbers))}" for op, numbers in of.items())


def contexts_of(text: str) -> Callable[[], Any]:
    """Returns the context_fn of checkpoint() for a text that written() made. Raises ValueError for any other text."""
    return partial(keeps, executions_of(text))


def executions_of(text: str) -> dict[Any, frozenset[int] | None]:
    """Returns, by operator, the executions that such a text keeps. Raises ValueError for any other text."""
    kept: dict[Any, frozenset[int] | None] = {}
    try:
        for part in text.removeprefix(KEEPS).split(", "):
            name, *numbers = part.split()
            op: Any = torch.ops
            for word in name.split("."):
                op = getattr(op, word)
            if not isinstance(op, torch._ops.OpOverload):
                raise ValueError(f"{name} is no overload, such as aten.mm.default")
            kept[op] = frozenset(map(int, numbers))
    except (AttributeError, ValueError) as error:
        raise ValueError(f"[apply] {text!r} names an operator that PyTorch does not have: {error}") from None
    return kept


def keeps(kept: dict[Any, frozenset[int] | None]) -> Any:
    """Keeps results of operators in a block: these executions, counted from 0; all of them where it says None."""
    ran: tuple[Counter[Any], Counter[Any]] = (Counter(), Counter())

    def policy(ctx: Any, op: Any, *_: Any, **__: Any) -> CheckpointPolicy:
        number, numbers = ran[ctx.is_recompute][op], kept.get(op, frozenset())
        ran[ctx.is_recompute][op] += 1
        is_kept = numbers is None or number in numbers
        return CheckpointPolicy.MUST_SAVE if is_kept else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)
