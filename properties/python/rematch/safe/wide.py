"""Runs targets in float64, to tell rounding from other differences."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import _engine_run_backward
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

_TO = {torch.float32: torch.float64, torch.complex64: torch.complex128}
_METHODS = {Tensor.float: Tensor.double, Tensor.cfloat: Tensor.cdouble}


def widened(t: Tensor) -> Tensor:
    """Returns a floating-point tensor in float64, a complex one in complex128, and others as they are."""
    if t.is_complex():
        return t.to(torch.complex128)
    return t.double() if t.is_floating_point() else t


def widen(tensors: Iterable[Tensor]) -> None:
    """Widens leaf tensors in place."""
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
        args, kwargs = tree_map(_dtype, (args, kwargs or {}))
        return _METHODS.get(func, func)(*args, **kwargs)


def _dtype(value: Any) -> Any:
    return _TO.get(value, value) if isinstance(value, torch.dtype) else value
