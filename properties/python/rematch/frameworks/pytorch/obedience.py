"""Whether what runs under a policy by operators is what it says."""

from __future__ import annotations

from typing import Any

import torch

Place = Any
"""That of watch.py, which imports this module."""

POLICY = "policy"
"""The option that names the policy of segments that have none of their own."""

_NEVER_ASKED = {torch.ops.aten.detach.default}
"""Operators of which a policy is never asked."""


class Obedience:
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
            self._compare(place, "to run again:", again if place.complete else again[: len(ran)], ran)

    def _compare(self, place: Place, what: str, expected: list[Any], ran: list[Any]) -> None:
        if expected == ran:
            return
        at = next((i for i, (a, b) in enumerate(zip(expected, ran, strict=False)) if a != b), min(len(expected), len(ran)))
        names = [str(ops[at]) if at < len(ops) else "no further operator" for ops in (expected, ran)]
        self.wrong = f"{what} {names[0]} expected, {names[1]} ran (layer {place.layer}, execution {place.execution})"
