"""Whether what runs under a policy by operators is what it says."""

from dataclasses import dataclass, field
from typing import Any

import torch

POLICY = "policy"
"""The option that names the policy of segments that have none of their own."""

_NEVER_ASKED = {torch.ops.aten.detach.default}
"""Operators of which a policy is never asked."""

_CAST = torch.ops.aten._to_copy.default


@dataclass(slots=True)
class Place:
    """An execution of a layer. Execution 0 is the forward, 1 and above are recomputations."""

    layer: int
    kind: str
    execution: int
    step: int
    microbatch: int
    stream: int = 0
    saves: int = 0
    entered: int = 0
    """Bytes that were held when the layer began."""
    draws: list[tuple[int, str]] = field(default_factory=list)
    """Draws: how many numbers each time, and their hash."""
    complete: bool = False
    """The layer has returned."""
    runs: dict[str, int] = field(default_factory=dict)
    """How often each operator has run."""
    made: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    """Results of operators, by the name of their memory, that are noted when the layer returns."""
    asked: list[tuple[Any, bool]] = field(default_factory=list)
    """Operators of which a policy was asked, and whether it keeps their results."""
    ran: list[Any] = field(default_factory=list)
    """Operators that ran, where policies go by them."""

    @property
    def where(self) -> dict[str, int]:
        return {"layer": self.layer, "step": self.step, "microbatch": self.microbatch}


class PolicyCheck:
    """Whether what runs is what the policies say: in a recomputation, what they keep does not run
    again, and all else does, in its order, until the layer is over."""

    def __init__(self) -> None:
        self.layers: set[int] = set()
        """The layers in segments with a policy by operators."""
        self.wrong = ""
        self._asked: dict[tuple[int, int, int], list[tuple[Any, bool]]] = {}

    def ran(self, place: Place, op: Any) -> int | None:
        """An operator has run within a layer. Returns its place in the layer's forward, None if that is unknown."""
        if place.layer not in self.layers or op in _NEVER_ASKED:
            return None
        place.ran.append(op)
        at, asked = len(place.ran) - 1, self._asked.get((place.step, place.microbatch, place.layer))
        if asked is None or place.asked:
            return at
        again = [k for k, (_, kept) in enumerate(asked) if not kept]
        return again[at] if at < len(again) else None

    def note(self, place: Place) -> None:
        """An execution of a layer is over."""
        if place.layer not in self.layers or self.wrong:
            return
        ran, where = place.ran, (place.step, place.microbatch, place.layer)
        if place.asked or (place.execution == 0 and torch.is_grad_enabled()):
            self._asked[where] = place.asked
            self._compare(place, "asked of", [op for op, _ in place.asked], ran)
        elif where in self._asked:
            again = [op for op, kept in self._asked[where] if not kept]
            if torch.is_autocast_enabled("cpu") and torch.is_autocast_cache_enabled():
                # Another recomputation of the backward may have left a cast in the cache.
                again, ran = ([op for op in ops if op is not _CAST] for ops in (again, ran))
            self._compare(place, "to run again:", again if place.complete else again[: len(ran)], ran)

    def _compare(self, place: Place, what: str, expected: list[Any], ran: list[Any]) -> None:
        if expected == ran:
            return
        at = next(
            (i for i, (a, b) in enumerate(zip(expected, ran, strict=False)) if a != b), min(len(expected), len(ran))
        )
        names = [str(ops[at]) if at < len(ops) else "no further operator" for ops in (expected, ran)]
        self.wrong = f"{what} {names[0]} expected, {names[1]} ran (layer {place.layer}, execution {place.execution})"
