"""Arrays of NumPy that a tape of Python objects keeps, and how many bytes they are."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterable
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

_LEAVES = (str, bytes, int, float, complex, bool, type(None), type, ModuleType, CodeType, MethodType, np.dtype, np.generic)


def _owner(array: np.ndarray) -> np.ndarray:
    """The array whose memory that one looks into."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def reached(roots: Iterable[Any], stop: Callable[[Any], bool] = lambda _: False) -> list[np.ndarray]:
    """Arrays that lie behind these objects, each memory once. A function is what it closes over. Nothing is looked for
    behind an object at which to stop."""
    seen: set[int] = set()
    found: list[np.ndarray] = []
    todo = list(roots)
    while todo:
        part = todo.pop()
        if isinstance(part, np.ndarray):
            part = _owner(part)
        if id(part) in seen or isinstance(part, _LEAVES):
            continue
        seen.add(id(part))
        if isinstance(part, np.ndarray):
            found.append(part)
        elif isinstance(part, FunctionType):
            todo += [*(part.__closure__ or ()), *(part.__defaults__ or ()), *(part.__kwdefaults__ or {}).values()]
        elif not stop(part):
            todo += gc.get_referents(part)
    return found


class Arrays:
    """Counts what tapes keep that is not the model's."""

    def __init__(self) -> None:
        self._own: dict[int, np.ndarray] = {}
        self._kept: list[weakref.ref[np.ndarray]] = []

    def let_in(self, own: Iterable[np.ndarray]) -> None:
        """These are the model's, until others are."""
        self._own = {id(array): array for array in map(_owner, own)}

    def of_others(self, arrays: Iterable[np.ndarray]) -> list[np.ndarray]:
        """Those that are not the model's."""
        return [array for array in arrays if id(array) not in self._own]

    def keep(self, arrays: Iterable[np.ndarray]) -> int:
        """Bytes of what a tape keeps, each memory once."""
        self._kept += [weakref.ref(array) for array in arrays]
        return sum(array.nbytes for array in arrays)

    def left(self) -> int:
        """Bytes of what tapes kept that are there still."""
        left = {id(array): array for array in (reference() for reference in self._kept) if array is not None}
        self._kept = [weakref.ref(array) for array in left.values()]
        return sum(array.nbytes for array in left.values())
