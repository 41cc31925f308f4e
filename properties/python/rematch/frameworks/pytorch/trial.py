"""Injected failures: what is written to in a trial, and what a run must not leave behind."""

import gc
from typing import Any

import torch
from torch import Tensor
from torch.overrides import _pop_mode as pop_function_mode
from torch.utils._python_dispatch import _pop_mode as pop_dispatch_mode


class WrittenTo:
    """A scope in which a tensor has other values, written in place and counted as such."""

    def __init__(self, t: Tensor | None) -> None:
        assert t is not None
        self._tensor = t
        self._before = t.detach().clone()

    def __enter__(self) -> None:
        with torch.no_grad():
            self._tensor.mul_(-1.5).sub_(1)

    def __exit__(self, *_: Any) -> None:
        with torch.no_grad():
            self._tensor.copy_(self._before)


def other_error(error: Exception, expected: type[Exception]) -> str:
    """Tells what is wrong with the error that ended a trial of PyTorch's own checkpoint(), "" if nothing
    is: what a layer threw comes out as it is, and its own complaints are RuntimeErrors."""
    right = isinstance(error, RuntimeError) if expected is RuntimeError else type(error) is expected
    return "" if right else f"{expected.__name__} expected in the trial, got {error!r}"


def left_behind() -> str:
    """Names settings of PyTorch that are not as a run finds them: "grad mode, autocast"."""
    changed = {
        "grad mode": not torch.is_grad_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "hooks on saved tensors": torch._C._autograd._top_saved_tensors_default_hooks(True) is not None,
        "dispatch mode": torch._C._len_torch_dispatch_stack() != 0,
        "function mode": torch._C._len_torch_function_stack() != 0,
        "cache of autocast": not torch.is_autocast_cache_enabled(),
    }
    return ", ".join(name for name, differs in changed.items() if differs)


def put_back() -> str:
    """Sets PyTorch's settings as a run finds them, so that the next one does not pay for what this
    one left behind. Returns what that was, as left_behind() does."""
    if not left_behind():
        return ""
    # Generators that still hold a scope leave it when they go, and that may be all.
    gc.collect()
    changed = left_behind()
    # Modes come first: they would see what the rest calls.
    while torch._C._len_torch_dispatch_stack():
        pop_dispatch_mode()
    while torch._C._len_torch_function_stack():
        pop_function_mode()
    torch.set_grad_enabled(True)
    torch.set_autocast_enabled("cpu", False)
    torch.set_autocast_cache_enabled(True)
    torch.clear_autocast_cache()
    while torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
        torch._C._autograd._pop_saved_tensors_default_hooks()
    return changed
