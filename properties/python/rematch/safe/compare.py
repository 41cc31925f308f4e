"""Finds the differences between what two runs left behind, each with a name and a sentence."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rematch.journal.comparison import told_apart
from rematch.safe.restore import strided_parts
from rematch.safe.state import ARGUMENT, ATTRIBUTE, BUFFER, CLASS, CLOSURE, GENERATOR, GLOBAL, PARAMETER, TAG, Leaf
from rematch.safe.target_run import AFTERWARDS, GRADIENT, OUTPUT, Seen

_MAY_ROUND = (OUTPUT, GRADIENT, PARAMETER, ATTRIBUTE, ARGUMENT, TAG)
"""Kinds of values that a forward or a backward computes."""

_LONGEST = 400
"""So many characters of an error are told: PyTorch lists all tensors that differ."""
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
    """One value that differs between two runs."""

    name: str
    kind: str
    before: Any
    after: Any
    text: str
    owner: str = ""


def differences(plain: Seen, checkpointed: Seen, leave_out: Collection[str] = ()) -> list[Change]:
    """Returns all bitwise differences, causes before consequences. `leave_out`: names that are not compared."""
    found = []
    if checkpointed.error:
        # Text behind an empty line is advice for others.
        text = " ".join(checkpointed.error.split("\n\n")[0].split())
        text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."
        found.append(Change("error", "error", "", checkpointed.error, text))
        return found
    for name, had in plain.flags.items():
        has = checkpointed.flags.get(name)
        if has is not None and has != had:
            says, said = ("requires grad", "does not") if has else ("does not require grad", "does")
            text = f"{name} {says}; in the plain run it {said}"
            found.append(Change(name, "flag", had, has, text))
    found += changes(plain.values, checkpointed.values, "in the plain run ")
    names = {change.name for change in found} | set(leave_out)
    found = [c for c in found if c.name not in leave_out and c.name.removeprefix(AFTERWARDS) not in names - {c.name}]
    return sorted(found, key=lambda change: _ORDER.index(change.kind) if change.kind in _ORDER else len(_ORDER))


def rounding(found: Sequence[Change], plain: Seen, checkpointed: Seen, eps: float) -> list[Change]:
    """Returns those differences in `found` that are no more than rounding.

    `plain` and `checkpointed` are the same two runs in float64, and `eps` is the epsilon of the narrowest dtype that
    the compared runs compute in. A reentrant forward does not record, which may select other kernels in PyTorch, and
    gradients are summed in another order or in other layouts. How much that changes depends on the number of terms in
    each sum and on how they cancel, which cannot be seen from outside. In float64 both runs compute the same sums, with
    an error that is smaller by a factor of 2^29 for float32. So a difference is rounding if

    1. at most half a unit of the narrow dtype is left of it in float64, relative to the largest element of the narrow
       tensor: the exact values are at most neighbours in the narrow dtype, and any larger difference is its error; and
    2. at least half of the digits of the narrow dtype, sqrt(eps), agree: a difference that float64 hides, such as a
       cast to a narrow dtype in only one of the runs, is larger.
    """
    return [c for c in found if _is_rounding(c, plain, checkpointed, eps)]


def _is_rounding(change: Change, plain: Seen, checkpointed: Seen, eps: float) -> bool:
    a, b = change.before, change.after
    wide = [seen.values.get(change.name, _ABSENT).value for seen in (plain, checkpointed)]
    tensors = [_real(t) for t in (a, b, *wide) if isinstance(t, Tensor) and t.layout == torch.strided]
    if change.kind not in _MAY_ROUND or len(tensors) < 4 or len({t.shape for t in tensors}) > 1:
        return False
    if a.dtype != b.dtype or not (a.is_floating_point() or a.is_complex()):
        return False
    a, b, wide_a, wide_b = tensors
    if not torch.equal(a.isfinite(), b.isfinite()):
        return False
    scale = _largest(a)
    return _largest(wide_a - wide_b) <= eps / 2 * scale and _largest(a - b) <= eps**0.5 * scale


def is_small(change: Change) -> bool:
    """Whether two tensors agree in half of their digits, as sums in another order do."""
    a, b = change.before, change.after
    if not (isinstance(a, Tensor) and isinstance(b, Tensor)) or (a.shape, a.dtype) != (b.shape, b.dtype):
        return False
    if a.layout != torch.strided or b.layout != torch.strided or not (a.is_floating_point() or a.is_complex()):
        return False
    eps, a, b = torch.finfo(a.dtype).eps, _real(a), _real(b)
    return torch.equal(a.isfinite(), b.isfinite()) and _largest(a - b) <= eps**0.5 * _largest(a)


def _largest(t: Tensor) -> float:
    finite = t[t.isfinite()]
    return finite.abs().max().item() if finite.numel() else 0.0


def _real(t: Tensor) -> Tensor:
    t = t.as_subclass(Tensor)
    return (torch.view_as_real(t.resolve_conj()) if t.is_complex() else t).double()


def changes(before: Mapping[str, Leaf], after: Mapping[str, Leaf], versus: str = "before ") -> list[Change]:
    """Returns the values that differ bitwise; `versus` stands before the old value in each text."""
    found = []
    for name in (*before, *(n for n in after if n not in before)):
        a, b = before.get(name, _ABSENT), after.get(name, _ABSENT)
        kind, owner = (a if a is not _ABSENT else b).kind, (a if a is not _ABSENT else b).owner
        text = _differs(a.value, b.value, versus)
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


def _differs(a: Any, b: Any, versus: str) -> str:
    """Returns a text that says what differs; empty if nothing does."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return _tensors_differ(a, b, versus)
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
    text = str(value) if not isinstance(value, str) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _tensors_differ(expected: Tensor, got: Tensor, versus: str) -> str:
    if expected is got:
        return ""
    parts = strided_parts(expected), strided_parts(got)
    if expected.layout == got.layout and parts[0] is not None and parts[1] is not None:
        if len(parts[0]) != len(parts[1]):
            return f"{len(parts[1])} parts, {versus}{len(parts[0])}"
        texts = (_tensors_differ(a, b, versus) for a, b in zip(*parts, strict=True))
        return next((text for text in texts if text), "")
    if (expected.shape, expected.dtype) != (got.shape, got.dtype):
        return f"{_type(got)}, {versus}{_type(expected)}"
    if expected.layout != got.layout:
        return f"{got.layout}, {versus}{expected.layout}".replace("torch.", "")
    if expected.device.type == "meta":
        return ""
    expected, got = expected.as_subclass(Tensor), got.as_subclass(Tensor)
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
    if not apart.any():
        return ""
    first = int(apart.nonzero()[0])
    now, was = told_apart(b[first].item(), a[first].item())
    return f"element {first} is {now}, {versus}{was} ({int(apart.sum())} of {len(a)} elements)"


def _type(t: Tensor) -> str:
    return f"{str(t.dtype).removeprefix('torch.')} {tuple(t.shape)}"
