"""The clock and the randomness of the system, replaced by numbers that repeat."""

from __future__ import annotations

import datetime
import hashlib
import os
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FunctionType
from typing import Any
from unittest import mock

import torch

_SECONDS = ("time", "perf_counter", "monotonic", "process_time", "thread_time")
_STEP = 1_000_000


class Tape:
    """What a forward reads instead: the n-th read of a step gives the same in every run. A recomputation reads on,
    as it would of the real ones."""

    def __init__(self) -> None:
        self.log: list[str] = []
        """What was read, in order."""
        self._step = 0
        self._at: dict[str, int] = {}

    def wind(self, step: int) -> None:
        """To the place where a step begins: what the recomputations of the one before have read moves nothing."""
        self._step = step
        self._at.clear()

    @contextmanager
    def playing(self, functions: list[FunctionType]) -> Iterator[None]:
        """Within, the sources are replaced, also where the globals of `functions` hold them."""
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
            yield time, name, lambda name=name: 1.0 + 0.37 * self._next(f"time.{name}")
            yield time, f"{name}_ns", lambda name=name: 1_000_000_007 + 370_000_003 * self._next(f"time.{name}_ns")
        for module, name in ((os, "urandom"), (random, "_urandom")):
            yield module, name, self._bytes
        for module in (torch, torch.random):
            yield module, "seed", self._seed
        yield datetime, "datetime", self._datetime()

    def _seed(self) -> int:
        seed = self._next("torch.seed")
        torch.manual_seed(seed)
        return seed

    def _datetime(self) -> type:
        read = self._next
        start = datetime.datetime(2001, 1, 1)

        class Datetime(datetime.datetime):
            @classmethod
            def now(cls, tz: Any = None) -> Any:
                return (start + datetime.timedelta(seconds=0.37 * read("datetime.now"))).replace(tzinfo=tz)

        return Datetime

    def _next(self, name: str) -> int:
        self.log.append(name)
        self._at[name] = self._at.get(name, self._step * _STEP) + 1
        return self._at[name]

    def _bytes(self, count: int) -> bytes:
        return hashlib.shake_128(str(self._next("os.urandom")).encode()).digest(count)
