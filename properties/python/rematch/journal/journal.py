"""Tells readers of one run as it happens: its operators, submodules and checkpointed regions."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any

import torch
from torch import nn

from rematch.journal.operators import Execution, Operators, Reader, Unseen, overrides
from rematch.journal.regions import Region, Regions, told, why

FORWARD, BACKWARD, RECOMPUTATION = "forward", "backward", "recomputation"
"""Phases of a run. Operators outside of the backward and of recomputations are in the forward, also those of hooks."""


def warning_of(who: str) -> Unseen:
    """Returns a function that warns, in the name of `who`, of what was not seen."""

    def warn(what: str, error: Exception) -> None:
        # Warnings that are errors must not reach what runs.
        with suppress(Warning):
            warnings.warn(f"{who}, not seen: {what}: {why(error)}", stacklevel=2)

    return warn


def hooked(register: Callable[..., Any], hook: Callable[..., Any], **options: Any) -> list[Any]:
    """Registers a hook; returns a list with its handle, empty for modules that take no hooks, such as scripted ones."""
    try:
        return [register(hook, **options)]
    except RuntimeError:
        return []


class Journal(Regions):
    """Tells `readers` what runs while it is open: operators, regions, and which of `modules` run, by name. What no
    reader asks for is not looked at. Errors of readers are passed to `unseen`; they never reach the code that runs."""

    def __init__(self, modules: Mapping[str, nn.Module], *readers: Reader, unseen: Unseen) -> None:
        super().__init__()
        self._named, self._readers, self._unseen = modules, readers, unseen
        self._operators = Operators(*readers, unseen=unseen)
        self._running: list[str] = []
        self._recomputing = 0

    @property
    def number(self) -> int:
        """The number of the last event of any kind: it tells which of two events came first."""
        return self._operators.number

    @property
    def module(self) -> str:
        """The name of the innermost submodule that runs; "" for the model itself, and outside of it."""
        return self._running[-1] if self._running else ""

    @property
    def recomputes(self) -> bool:
        """Whether a recomputation is under way."""
        return self._recomputing > 0

    @property
    def phase(self) -> str:
        """The current phase: FORWARD, BACKWARD or RECOMPUTATION."""
        if self.recomputes:
            return RECOMPUTATION
        return BACKWARD if torch._C._current_graph_task_id() >= 0 else FORWARD

    @contextmanager
    def open(self) -> "Iterator[Journal]":
        """Within, readers are told what runs. Nothing is left behind, whatever happens."""
        with told(self), self.attached():
            yield self

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Does the same as open() except for regions, of which told() tells."""
        with ExitStack() as stack:
            for name, module in self._named.items():
                hooks = hooked(module.register_forward_pre_hook, lambda *_, n=name: self._enter(n))
                if hooks:
                    leave = partial(self._leave, name)
                    hooks += hooked(module.register_forward_hook, leave, always_call=True)
                for hook in hooks:
                    stack.callback(hook.remove)
            if any(overrides(reader, method) for reader in self._readers for method in ("before", "after")):
                stack.enter_context(self._operators)
            yield

    def begin(self, region: Region, recomputes: bool) -> Any:
        self._recomputing += recomputes
        execution = Execution(region, recomputes)
        self._tell("begins", execution)
        return execution

    def end(self, token: Any) -> None:
        self._tell("ends", token)
        self._recomputing -= token.recomputes

    def backward(self) -> None:
        self._tell("backward")

    def _enter(self, name: str) -> None:
        self._running.append(name)
        self._tell("enters", name)

    def _leave(self, name: str, module: nn.Module, args: Any, returned: Any) -> None:
        if self._running:
            self._running.pop()
        self._tell("leaves", name, returned)

    def _tell(self, method: str, *what: Any) -> None:
        self._operators.number += 1
        for reader in self._readers:
            try:
                getattr(reader, method)(*what)
            except Exception as error:
                self._unseen(" ".join([method, *(part for part in what if isinstance(part, str))]), error)
