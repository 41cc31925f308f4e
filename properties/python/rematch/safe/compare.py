"""Differences between what two runs left behind, each with its name and a sentence."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rematch.safe.run import GRADIENT, OUTPUT, Seen
from rematch.safe.state import ARGUMENT, ATTRIBUTE, BUFFER, CLASS, CLOSURE, GENERATOR, GLOBAL, PARAMETER, Leaf

ROUNDING = 8
"""Outputs, gradients, and what is made of them, may differ by so many units of rounding of their
largest element: under the reentrant variant the forward does not record, for which PyTorch has
other kernels, and gradients have another memory layout and are summed in another order."""

_ORDER = (OUTPUT, GRADIENT, "flag", BUFFER, PARAMETER, ATTRIBUTE, ARGUMENT, CLOSURE, GLOBAL, CLASS)
_WORDS = {
    BUFFER: "buffer ",
    ATTRIBUTE: "attribute ",
    CLOSURE: "variable ",
    GLOBAL: "global ",
    CLASS: "class attribute ",
}


@dataclass(frozen=True)
class Change:
    """One value that differs."""

    name: str
    kind: str
    before: Any
    after: Any
    text: str
    owner: str = ""


COARSE = 2 * torch.finfo(torch.bfloat16).eps / torch.finfo(torch.float32).eps
"""So many units of float32 under autocast to bfloat16 and the reentrant variant: the inputs of its
recomputation are leaves, of which autocast keeps one cast for all that use it, so that gradients are
summed in bfloat16 there. k users make k - 1 additions, each wrong by half a unit of bfloat16 at most: two
units are enough for five users, such as queries, keys, values and two more."""


def differences(
    plain: Seen, checkpointed: Seen, leave_out: Collection[str] = (), units: float = ROUNDING
) -> list[Change]:
    """All differences, causes before consequences. `leave_out`: names that are not compared."""
    found = []
    if checkpointed.error:
        # Text behind an empty line is advice for others.
        text = " ".join(checkpointed.error.split("\n\n")[0].split())
        found.append(Change("error", "error", "", checkpointed.error, text))
        return found
    for name, had in plain.flags.items():
        has = checkpointed.flags.get(name)
        if has is not None and has != had:
            says, said = ("requires grad", "does not") if has else ("does not require grad", "does")
            text = f"{name} {says}; in the plain run it {said}"
            found.append(Change(name, "flag", had, has, text))
    found += changes(plain.values, checkpointed.values, "in the plain run ", units)
    found = [change for change in found if change.name not in leave_out]
    return sorted(found, key=lambda change: _ORDER.index(change.kind) if change.kind in _ORDER else len(_ORDER))


def changes(
    before: Mapping[str, Leaf], after: Mapping[str, Leaf], versus: str = "before ", units: float = 0
) -> list[Change]:
    """Values that differ; `units` of rounding are left to outputs and gradients of floating tensors."""
    found = []
    for name in (*before, *(n for n in after if n not in before)):
        a, b = before.get(name, _ABSENT), after.get(name, _ABSENT)
        kind, owner = (a if a is not _ABSENT else b).kind, (a if a is not _ABSENT else b).owner
        rounds = units if kind in (OUTPUT, GRADIENT, PARAMETER, ATTRIBUTE, ARGUMENT) else 0
        text = _differs(a.value, b.value, versus, rounds)
        if text:
            label = name if name.startswith(_WORDS.get(kind, "-")) else _WORDS.get(kind, "") + name
            text = f"{label} after the run" if kind == GENERATOR else f"{label}: {text}"
            had, has = (None if isinstance(v, _Absent) else v for v in (a.value, b.value))
            found.append(Change(name, kind, had, has, text, owner))
    return found


class _Absent:
    def __str__(self) -> str:
        return "absent"


_ABSENT = Leaf("", _Absent())


def _differs(a: Any, b: Any, versus: str, units: float) -> str:
    """What differs, or nothing."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return _tensors_differ(a, b, versus, units)
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        if a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind in "fc"):
            return ""
        return f"another array, {versus}{_short(a)}"
    if type(a) is type(b) and (a == b or (a != a and b != b)):
        return ""
    return f"{_short(b)}, {versus}{_short(a)}"


def _short(value: Any) -> str:
    if value is None:
        return "absent"
    if isinstance(value, Tensor):
        return "present"
    if isinstance(value, _Absent):
        return "absent"
    text = str(value) if not isinstance(value, str) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _tensors_differ(expected: Tensor, got: Tensor, versus: str, units: float) -> str:
    if (expected.shape, expected.dtype) != (got.shape, got.dtype):
        return f"{_type(got)}, {versus}{_type(expected)}"
    if expected.layout != torch.strided or expected.is_quantized or expected.device.type == "meta":
        return "" if str(expected) == str(got) else "other elements"
    expected, got = _plain(expected), _plain(got)
    if torch.equal(expected, got):
        return ""
    if expected.is_complex():
        expected, got = torch.view_as_real(expected), torch.view_as_real(got)
    if expected.dtype == torch.bool or not expected.is_floating_point():
        a, b = expected.flatten(), got.flatten()
        apart = a != b
    else:
        a, b = expected.double().flatten(), got.double().flatten()
        apart = ~((a == b) | (a.isnan() & b.isnan()))
        if units:
            finite = a[a.isfinite()]
            largest = finite.abs().max().item() if finite.numel() else 0
            own = min(units, ROUNDING) * torch.finfo(expected.dtype).eps
            coarse = units * torch.finfo(torch.float32).eps if units > ROUNDING else 0
            apart &= ~((a - b).abs() <= max(own, coarse) * largest)
    if not apart.any():
        return ""
    first = int(apart.nonzero()[0])
    return (
        f"element {first} is {_number(b[first])}, {versus}{_number(a[first])} ({int(apart.sum())} of {len(a)} elements)"
    )


def _plain(t: Tensor) -> Tensor:
    return t.as_subclass(Tensor) if type(t) is not Tensor else t


def _number(t: Tensor) -> str:
    return f"{t.item():.7g}" if t.is_floating_point() else str(t.item())


def _type(t: Tensor) -> str:
    return f"{str(t.dtype).removeprefix('torch.')} {tuple(t.shape)}"
