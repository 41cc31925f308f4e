"""Replaces the clocks, the randomness and the load of the system by numbers that repeat."""

import datetime
import hashlib
import os
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from types import CodeType, FunctionType
from typing import Any
from unittest import mock

import torch

_SECONDS = ("time", "perf_counter", "monotonic", "process_time", "thread_time")
_STEP = 1_000_000
_LATER = 401 * 86_400 + 7 * 3_600 + 13 * 60 + 31
"""Seconds that change the second, the minute, the hour, the day and the year, also between odd and even."""
_LOADS = {
    "os": ("getloadavg",),
    "gc": ("get_count",),
    "resource": ("getrusage",),
    "psutil": ("virtual_memory", "swap_memory", "cpu_percent", "getloadavg", "Process.memory_info"),
    "torch.cuda": ("mem_get_info", "memory_allocated", "memory_reserved", "max_memory_allocated"),
}
_READS = {"urandom", "localtime", "gmtime", "ctime", "strftime", "now", "utcnow", "today"}
_READS |= {*_SECONDS, *(f"{name}_ns" for name in _SECONDS)}
_READS |= {name.rpartition(".")[2] for names in _LOADS.values() for name in names}


def may_read(functions: Iterable[FunctionType]) -> bool:
    """Whether the code of one of `functions` names anything that a tape replaces."""

    def names(code: CodeType) -> bool:
        return not _READS.isdisjoint(code.co_names) or any(
            names(inner) for inner in code.co_consts if isinstance(inner, CodeType)
        )

    return any(names(function.__code__) for function in functions)


class Tape:
    """Answers reads of the system: the n-th read of a step gives the same number in every run.

    A recomputation gets the next numbers, as from the real system. With a `load`, it reads a much later clock, and the
    system's load and memory multiplied by `load`.
    """

    def __init__(self, load: float = 0) -> None:
        self.log: list[str] = []
        """The names of what was read, in order."""
        self._load, self._later = load, False
        self._loads: dict[str, Any] = {}
        self._step = 0
        self._at: dict[str, int] = {}

    @property
    def reads_loads(self) -> bool:
        """Whether the load or the memory of the system was ever read."""
        return bool(self._loads)

    def wind(self, step: int) -> None:
        """Winds to the beginning of a step, however much the recomputations of the step before have read."""
        self._step, self._later = step, False
        self._at.clear()

    def backward(self) -> None:
        """Notes that the backward of a step begins."""
        self._later = bool(self._load)

    @contextmanager
    def playing(self, functions: list[FunctionType]) -> Iterator[None]:
        """Within, the sources are replaced, also in the globals of `functions` that hold them."""
        self.log.clear()
        self.wind(0)
        with ExitStack() as stack:
            new: dict[int, Any] = {}
            for module, name, make in self._sources():
                new[id(getattr(module, name))] = make
                stack.enter_context(mock.patch.object(module, name, make))
            for function in functions:
                scope = function.__globals__
                for name in function.__code__.co_names:
                    if id(scope.get(name)) in new:
                        stack.enter_context(mock.patch.dict(scope, {name: new[id(scope[name])]}))
            yield

    def _sources(self) -> Iterator[tuple[Any, str, Any]]:
        for name in _SECONDS:
            yield time, name, lambda name=name: self._now(f"time.{name}")
            yield time, f"{name}_ns", lambda name=name: int(1e9 * self._now(f"time.{name}_ns"))
        for name in ("localtime", "gmtime", "ctime"):
            yield time, name, self._at_time(name, getattr(time, name))
        strftime, local = time.strftime, time.localtime
        yield time, "strftime", lambda form, when=None: strftime(form, local() if when is None else when)
        for module, name in ((os, "urandom"), (random, "_urandom")):
            yield module, name, self._bytes
        for module in (torch, torch.random):
            yield module, "seed", self._seed
        yield datetime, "datetime", self._datetime()
        yield datetime, "date", self._date()
        for of, names in _LOADS.items():
            for path in names if of in sys.modules else ():
                place, _, name = path.rpartition(".")
                owner = getattr(sys.modules[of], place) if place else sys.modules[of]
                if hasattr(owner, name):
                    yield owner, name, self._load_of(f"{of}.{path}", getattr(owner, name))

    def _now(self, name: str) -> float:
        return 1.0 + 0.37 * self._next(name) + (_LATER if self._later else 0)

    def _at_time(self, name: str, real: Callable[[Any], Any]) -> Callable[..., Any]:
        return lambda seconds=None: real(self._now(f"time.{name}") if seconds is None else seconds)

    def _load_of(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def read(*args: Any, **kwargs: Any) -> Any:
            self.log.append(name)
            if name not in self._loads:
                self._loads[name] = real(*args, **kwargs)
            return _times(self._load if self._later else 1, self._loads[name])

        return read

    def _seed(self) -> int:
        seed = self._next("torch.seed")
        torch.manual_seed(seed)
        return seed

    def _datetime(self) -> type:
        now = self._now
        start = datetime.datetime(2001, 1, 1)

        class Datetime(datetime.datetime):
            @classmethod
            def now(cls, tz: Any = None) -> Any:
                return (start + datetime.timedelta(seconds=now("datetime.now"))).replace(tzinfo=tz)

            utcnow = today = now

        return Datetime

    def _date(self) -> type:
        now, start = self._now, datetime.date(2001, 1, 1)

        class Date(datetime.date):
            @classmethod
            def today(cls) -> Any:
                return start + datetime.timedelta(seconds=now("date.today"))

        return Date

    def _next(self, name: str) -> int:
        self.log.append(name)
        self._at[name] = self._at.get(name, self._step * _STEP) + 1
        return self._at[name]

    def _bytes(self, count: int) -> bytes:
        return hashlib.shake_128(str(self._next("os.urandom")).encode()).digest(count)


def _times(load: float, value: Any) -> Any:
    """Returns `load` times a number, or a tuple of numbers, named or not; 0, where nothing is in use, becomes a large
    number if `load` is above 1."""
    if isinstance(value, tuple):
        parts = [_times(load, part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if not isinstance(value, (int, float)):
        return value
    return type(value)(value * load if value or load <= 1 else 2**33)
