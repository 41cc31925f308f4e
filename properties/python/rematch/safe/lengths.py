"""Makes the same inputs with a longer sequence."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

_SAYS_LENGTH = ("len", "max", "pos", "seq", "longest", "context")
_MOST = 512


def length_of(given: Mapping[str, Tensor]) -> int:
    """Returns the extent of the first input along the axis that may be a sequence (tokens, rows of vectors), or 0."""
    first = next(iter(given.values()), None)
    axis = None if first is None else _axis(first)
    return 0 if first is None or axis is None else first.shape[axis]


def longer_ones(length: int, modules: Iterable[nn.Module]) -> list[int]:
    """Returns lengths to try: about twice `length`, and beyond a limit that a module holds by a name for it."""
    twice = 2 * length + 1
    held = (item for module in modules for item in module.__dict__.items())
    limits = [n for key, n in held if type(n) is int and any(word in key for word in _SAYS_LENGTH)]
    return [twice, *sorted(n + 1 for n in limits if twice <= n < _MOST)[:1]]


def stretched(given: Mapping[str, Tensor], length: int) -> dict[str, Tensor]:
    """Returns the inputs with each sequence repeated up to `length`; positions count on."""
    old, found = length_of(given), dict(given)
    for number, (name, t) in enumerate(given.items()):
        for axis in [_axis(t)] if number == 0 else _axes(t, old, next(iter(given.values()))):
            index = torch.arange(length, device=t.device)
            part = found[name].index_select(axis, index % old)
            counts = number and not t.is_floating_point() and t.dtype != torch.bool and old > 1
            if counts and (t.diff(dim=axis) == 1).all():
                part += (index // old * old).view([-1 if a == axis else 1 for a in range(t.dim())]).to(t.dtype)
            found[name] = part
    return found


def _axis(t: Tensor) -> int | None:
    if t.layout != torch.strided or t.is_nested or 0 in t.shape:
        return None
    if t.is_floating_point():
        return {2: 0, 3: 1}.get(t.dim())
    return t.dim() - 1 if t.dim() in (1, 2) and not t.is_complex() else None


def _axes(t: Tensor, length: int, first: Tensor) -> list[int]:
    if t.layout != torch.strided or t.is_nested:
        return []
    axes = [axis for axis, extent in enumerate(t.shape) if extent == length]
    # A batch, or the width of vectors, may be as large.
    if t.dim() > 2 or (t.dim() == 2 and len(axes) == 2 and first.shape[0] == length and first.dim() > 1):
        axes = [axis for axis in axes if axis]
    if t.dim() > 2 and first.is_floating_point() and first.shape[-1] == length:
        axes = [axis for axis in axes if axis < t.dim() - 1]
    return axes
