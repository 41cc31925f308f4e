"""Runs targets in float64, to tell rounding from other differences, and on inputs of other lengths."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import _engine_run_backward
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

_SAYS_LENGTH = ("len", "max", "pos", "seq", "longest", "context")
_MOST = 512


def length_of(given: Mapping[str, Tensor]) -> int:
    """Returns the extent of the first input along the axis that may be a sequence (tokens, rows of vectors), or 0."""
    first = next(iter(given.values()), None)
    axis = None if first is None else _axis(first)
    return 0 if first is None or axis is None else first.shape[axis]


def longer_ones(length: int, modules: Iterable[nn.Module]) -> list[int]:
    """Returns lengths to try: about twice `length`, and one above a larger limit in an attribute such as max_len."""
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


_TO = {torch.float32: torch.float64, torch.complex64: torch.complex128}
_METHODS = {Tensor.float: Tensor.double, Tensor.cfloat: Tensor.cdouble}


def widened(t: Tensor) -> Tensor:
    """Returns a floating-point tensor in float64, a complex one in complex128, and others as they are."""
    if t.is_complex():
        return t.to(torch.complex128)
    return t.double() if t.is_floating_point() else t


def widen(tensors: Iterable[Tensor]) -> None:
    for t in tensors:
        # Some layouts have no float64.
        with suppress(RuntimeError, NotImplementedError):
            if t.is_leaf and not is_lazy(t):
                t.data = widened(t.data)


@contextmanager
def wide() -> Iterator[None]:
    """Within, code that asks for float32 gets float64. Code that asks for less gets it, as casts are part of a module.

    Tensor.backward() leaves this mode. backward() below does not, so that recomputations run within it.
    """
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _Wide():
            yield
    finally:
        torch.set_default_dtype(default)


def backward(loss: Tensor, keep: bool) -> None:
    """Runs loss.backward(retain_graph=keep) without leaving wide()."""
    ones = (torch.ones_like(loss),)
    _engine_run_backward((loss,), ones, keep, False, (), allow_unreachable=True, accumulate_grad=True)


class _Wide(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = tree_map(lambda v: _TO.get(v, v) if isinstance(v, torch.dtype) else v, (args, kwargs or {}))
        return _METHODS.get(func, func)(*args, **kwargs)
