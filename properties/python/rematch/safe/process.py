"""The state of a process beside the objects of a target: read as named values, and put back."""

import gc
import logging
import os
import signal
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module

# Bound here, as a tape may replace that of the module.
from time import thread_time
from traceback import walk_stack
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import _get_current_function_mode_stack
from torch.utils import _python_dispatch

from rematch.safe.ambient import set_switches, switches
from rematch.safe.state import ENVIRONMENT, GLOBAL, Leaf
from rematch.safe.values import Identity

_autograd = torch._C._autograd
_OTHERS_SET = ("PYTEST_", "TORCHINDUCTOR_CACHE_DIR", "TRITON_", "CUDA_HOME", "KMP_DUPLICATE_LIB_OK", "FLYDSL_")
"""Environment variables that pytest and PyTorch's compiler set for themselves: put back, but not compared."""
_ENDS = [s for s in (getattr(signal, name, None) for name in ("SIGKILL", "SIGSTOP")) if s is not None]
_SIGNALS = [s for s in signal.Signals if s not in _ENDS]


class Held(Identity):
    """An object that a process holds at one place."""


def _held(place: Any, name: str) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    return lambda: Held(getattr(place, name)), lambda held: setattr(place, name, held.value)


def _set_handlers(handlers: tuple[Any, ...]) -> None:
    for number, handler in zip(_SIGNALS, handlers, strict=True):
        if handler is not None and signal.getsignal(number) is not handler:
            signal.signal(number, handler)


def _set_filters(filters: tuple[Any, ...]) -> None:
    warnings.filters[:] = filters  # type: ignore[index]
    warnings._filters_mutated()  # type: ignore[attr-defined]


def _directory() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


PROCESS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "sys.stdout": _held(sys, "stdout"),
    "sys.stderr": _held(sys, "stderr"),
    "sys.stdin": _held(sys, "stdin"),
    "sys.excepthook": _held(sys, "excepthook"),
    "sys.path": (lambda: tuple(sys.path), lambda v: sys.path.__setitem__(slice(None), v)),
    "the working directory": (_directory, os.chdir),
    "the garbage collector": (gc.isenabled, lambda on: gc.enable() if on else gc.disable()),
    "the recursion limit": (sys.getrecursionlimit, sys.setrecursionlimit),
    "the filters of warnings": (lambda: tuple(warnings.filters), _set_filters),
    "warnings.showwarning": _held(warnings, "showwarning"),
    "the handlers of signals": (lambda: tuple(signal.getsignal(s) for s in _SIGNALS), _set_handlers),
    "the level of logging": (
        lambda: (logging.root.level, logging.root.manager.disable),
        lambda v: (logging.root.setLevel(v[0]), logging.disable(v[1])),
    ),
    "what NumPy does about errors": (np.geterr, lambda v: np.seterr(**v)),
}
"""Parts of a process's state, each with a function that reads it and one that sets it."""


class Process:
    """The state of the process when this object was made."""

    def __init__(self) -> None:
        self._values = {name: read() for name, (read, _) in PROCESS.items()}
        self._switches, self._environment, self._stacks = switches(), dict(os.environ), stacks()
        self._hooks_are_off = _autograd._saved_tensors_hooks_get_disabled_error_message()
        # checkpoint() imports it at its first call, which replaces functions of PyTorch, sets variables, adds filters.
        import_module("torch._dynamo")
        self._places: dict[str, tuple[Any, dict[str, Any]]] = {}
        self.look_at([])

    def look_at(self, functions: Iterable[types.FunctionType]) -> None:
        """Also watches the modules and classes that `functions` name: a forward may replace a function there."""
        for place in (torch, torch.nn.functional, Tensor, *(p for f in functions for p in _places_of(f))):
            name = getattr(place, "__name__", "")
            if isinstance(place, type):
                name = f"{place.__module__}.{place.__qualname__}"
            if name not in self._places:
                self._places[name] = place, {k: v for k, v in list(vars(place).items()) if callable(v)}

    def leaves(self) -> dict[str, Leaf]:
        """Returns the state of the process as leaves, without PyTorch's own modes, which a recomputation may change."""
        found = {name: Leaf(GLOBAL, read()) for name, (read, _) in PROCESS.items()}
        for key, text in os.environ.items():
            if not key.startswith(_OTHERS_SET):
                found[f"os.environ[{key!r}]"] = Leaf(ENVIRONMENT, text)
        for name in self._places:
            found[f"functions of {name}"] = Leaf(GLOBAL, ", ".join(self._exchanged(name)) or "as they were")
        return found

    def modes(self) -> dict[str, Leaf]:
        """Returns PyTorch's switches and stacks as leaves."""
        found = {f"{name} of PyTorch": Leaf(GLOBAL, value) for name, value in switches().items()}
        for name, stack in stacks().items():
            found[name] = Leaf(GLOBAL, tuple(type(part).__name__ for part in stack))
        return found

    def _exchanged(self, name: str) -> list[str]:
        place, kept = self._places[name]
        now = vars(place)
        exchanged = [key for key, value in kept.items() if now.get(key) is not value]
        # A class may get a method that it had from another one.
        return exchanged + [k for k, v in now.items() if isinstance(place, type) and callable(v) and k not in kept]

    def restore(self) -> None:
        """Puts everything back as it was when this object was made."""
        set_stacks(self._stacks)
        if self._hooks_are_off is not None:
            _autograd._saved_tensors_hooks_disable(self._hooks_are_off)
        set_switches(self._switches)
        for name, (read, put) in PROCESS.items():
            # A directory may be gone; the rest is put back all the same.
            with suppress(OSError, ValueError):
                if read() != self._values[name] and (put is not _set_handlers or _is_main_thread()):
                    put(self._values[name])
        if os.environ != self._environment:
            for key in os.environ.keys() - self._environment.keys():
                del os.environ[key]
            os.environ.update(self._environment)
        for name, (place, kept) in self._places.items():
            for key in self._exchanged(name):
                if key in kept:
                    setattr(place, key, kept[key])
                else:
                    delattr(place, key)


def is_of_process(name: str) -> bool:
    """Whether leaves() gives a value of this name: a late import may change some of them once."""
    return name in PROCESS or name.startswith(("os.environ[", "functions of "))


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _places_of(function: types.FunctionType) -> Iterator[Any]:
    """Yields the modules that a function's code names, also through other modules, and library classes among them."""
    names = function.__code__.co_names
    waiting = [function.__globals__.get(name) for name in names]
    seen: set[int] = set()
    while waiting:
        place = waiting.pop()
        heap = isinstance(place, type) and place.__flags__ & (1 << 9)
        if id(place) in seen or not (isinstance(place, types.ModuleType) or heap):
            continue
        seen.add(id(place))
        yield place
        if isinstance(place, types.ModuleType):
            waiting += [vars(place).get(name) for name in names]


def stacks() -> dict[str, list[Any]]:
    """Returns PyTorch's stacks of this thread, each from the bottom."""
    hooks: list[Any] = []
    if _autograd._saved_tensors_hooks_get_disabled_error_message() is None:
        # PyTorch tells of the top alone.
        while (top := _autograd._top_saved_tensors_default_hooks(False)) is not None:
            hooks.insert(0, top)
            _autograd._pop_saved_tensors_default_hooks()
        for pair in hooks:
            _autograd._push_saved_tensors_default_hooks(*pair)
    return {
        "the stack of hooks of saved tensors": hooks,
        "the stack of dispatch modes": _python_dispatch._get_current_dispatch_mode_stack(),
        "the stack of function modes": list(_get_current_function_mode_stack()),
    }


def set_stacks(kept: dict[str, list[Any]]) -> None:
    """Puts back what stacks() returned."""
    _autograd._saved_tensors_hooks_enable()
    for (now, then), (pop, push) in zip(zip(stacks().values(), kept.values(), strict=True), _MOVES, strict=True):
        same = 0
        while same < min(len(now), len(then)) and _same(now[same], then[same]):
            same += 1
        for _ in now[same:]:
            pop()
        for part in then[same:]:
            push(part)


def _same(a: Any, b: Any) -> bool:
    # Hooks of saved tensors are pairs, and each look makes other pairs.
    return a is b or (isinstance(a, tuple) and a[0] is b[0] and a[1] is b[1])


_MOVES: tuple[tuple[Callable[[], Any], Callable[[Any], Any]], ...] = (
    (_autograd._pop_saved_tensors_default_hooks, lambda pair: _autograd._push_saved_tensors_default_hooks(*pair)),
    (_python_dispatch._pop_mode, _python_dispatch._push_mode),
    (torch._C._pop_torch_function_stack, torch._C._push_on_torch_function_stack),
)


class DoesNotEnd(BaseException):
    """A trial takes far longer than its plain run. It is not an Exception, as the target may catch those."""


def why_not_stopped() -> str:
    """Returns why stopped_after() cannot stop anything here; empty if it can."""
    if not hasattr(signal, "SIGALRM"):
        return "the system has no alarm"
    if not _is_main_thread():
        return "signals reach the main thread alone"
    in_use = signal.getitimer(signal.ITIMER_REAL)[0] > 0 or signal.getsignal(signal.SIGALRM) is None
    return "the process uses its alarm itself" if in_use else ""


@contextmanager
def stopped_after(seconds: float) -> Iterator[None]:
    """Within, raises DoesNotEnd in Python code of the main thread that has computed for `seconds`, or waited as long at
    one place. Does nothing if why_not_stopped() gives a reason."""
    if why_not_stopped():
        yield
        return
    handler = signal.getsignal(signal.SIGALRM)

    begin, last = thread_time(), (None, 0, 0.0)

    def stop(number: int, frame: Any) -> None:
        # It has neither computed for so long nor waited at one place: the machine is busy.
        nonlocal last
        before, last = last, (frame, frame.f_lasti, thread_time())
        waits = before[:2] == last[:2] and last[2] - before[2] < _NOTHING
        if not waits and last[2] - begin < seconds:
            return
        if any(caller.f_code.co_filename.startswith("<frozen importlib") for caller, _ in walk_stack(frame)):
            # A module whose import is interrupted stays half imported.
            return
        while frame is not None and frame.f_code.co_filename.startswith(_PYTORCH):
            frame = frame.f_back
        where = f"in {frame.f_code.co_name}(), line {frame.f_lineno}" if frame is not None else "in PyTorch"
        raise DoesNotEnd(f"stopped after {seconds:.0f} s {where}")

    signal.signal(signal.SIGALRM, stop)
    # The alarm repeats, as the target may catch what is raised.
    signal.setitimer(signal.ITIMER_REAL, seconds / 2, seconds / 2)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        if signal.getsignal(signal.SIGALRM) is stop:
            signal.signal(signal.SIGALRM, handler)


_NOTHING = 0.005
"""Seconds that a waiting thread may compute: as much as this handler takes."""
_PYTORCH = torch.__path__[0]
