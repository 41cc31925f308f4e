"""Says of a value whether it is looked into, and what of it is compared."""

import argparse
import array
import functools
import pickle
import queue
import random
import sys
import threading
import types
import zlib
from collections import UserList, deque
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from rematch.safe.restore import LOCKS, NOTHING, can_be_given_again, is_taken

_LIBRARY = {"torch", "numpy", "rematch", "pytest", "_pytest", "transformers.utils", *sys.stdlib_module_names} - {
    "__main__"
}
SCALARS = (int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
PLAIN = {str, int, float, complex, bytes, bool, type(None)}
MOST_ENTRIES = 64
GENERATORS = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)
_CONTAINERS = (Mapping, list, set, deque, array.array, bytearray, np.ndarray)
_OTHERS = (nn.Module, Tensor, ContextVar, Iterator, functools._lru_cache_wrapper)
_STATES = (*SCALARS, *GENERATORS, *LOCKS, *_CONTAINERS, *_OTHERS)
_OF_LIBRARIES = (
    threading.local,
    threading.Event,
    threading.Condition,
    threading.Semaphore,
    types.SimpleNamespace,
    argparse.Namespace,
    queue.Queue,
    UserList,
    torch.quasirandom.SobolEngine,
)
"""Classes of libraries whose objects hold what the user put there: they are looked into like those of the user."""


def is_library(name: str | None) -> bool:
    """Whether a module of this name is PyTorch's or Python's own: its globals are not looked into."""
    name = name or ""
    return name.split(".")[0] in _LIBRARY or ".".join(name.split(".")[:2]) in _LIBRARY


def parts_of(value: Any) -> list[tuple[Any, Any]]:
    """Returns the parts of a container by key or number; of a large one, without plain values."""
    if isinstance(value, dict):
        values, pairs = dict.values(value), dict.items(value)
    elif isinstance(value, Mapping):
        return list(value.items())
    else:
        values, pairs = value, enumerate(value)
    if len(value) <= MOST_ENTRIES:
        return list(pairs)
    # A dictionary may have a million entries.
    return [] if PLAIN.issuperset(map(type, values)) else [pair for pair in pairs if type(pair[1]) not in PLAIN]


def plain_values(value: Any) -> Any:
    """Returns the plain values of a large container."""
    if not isinstance(value, dict):
        return [part for part in value if type(part) in PLAIN]
    if PLAIN.issuperset(map(type, dict.values(value))):
        return dict(dict.items(value))
    return {key: part for key, part in dict.items(value) if type(part) in PLAIN}


def is_object(value: Any) -> bool:
    """Whether `value` is an object of a class that is not a library's: its attributes are looked into."""
    if isinstance(value, (type, types.ModuleType, types.BuiltinFunctionType, nn.Module, Tensor, BaseException)):
        return False
    if isinstance(value, _OF_LIBRARIES):
        return True
    return not is_library(type(value).__module__) and not callable(getattr(value, "__wrapped__", None))


def is_state(value: Any) -> bool:
    return isinstance(value, _STATES) or is_object(value)


def is_installed(part: types.FunctionType | type) -> bool:
    """Whether a function or a class belongs to an installed package. A function is judged by its own code, as one that
    wraps another has the other's `__module__`."""
    if isinstance(part, types.FunctionType):
        return _is_of_packages(part.__code__.co_filename)
    return _is_of_packages(str(getattr(sys.modules.get(part.__module__), "__file__", None)))


@functools.cache
def _is_of_packages(path: str) -> bool:
    return "site-packages" in path or "dist-packages" in path


def is_state_of_a_package(value: Any) -> bool:
    """Whether a global of an installed package is looked at. Functions are not: they would lead everywhere."""
    if isinstance(value, (Mapping, list, set, deque)):
        return len(value) <= MOST_ENTRIES
    return isinstance(value, (nn.Module, Tensor, *GENERATORS, ContextVar, bool, int, float))


def leaf_value(value: Any, of_tensor: Callable[[Tensor], Any]) -> Any:
    """Returns what of a value is compared; NOTHING if its parts are compared instead."""
    if isinstance(value, Tensor):
        if getattr(value, "fake_mode", None) is not None:
            return Made(f"fake tensor {list(value.shape)}")
        return Made("parameter without a shape") if is_lazy(value) else of_tensor(value)
    if isinstance(value, SCALARS):
        return value
    if isinstance(value, LOCKS):
        return "taken" if is_taken(value) else "free"
    if isinstance(value, torch.Generator):
        return of_tensor(value.get_state())
    if isinstance(value, np.ndarray):
        return value.copy() if value.dtype != object else NOTHING
    if isinstance(value, (array.array, bytearray)):
        return np.array(value)
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    if isinstance(value, np.random.RandomState):
        return repr(value.get_state())
    if isinstance(value, random.Random):
        return value.getstate()
    if isinstance(value, Mapping):
        return Extent("entries", len(value))
    if isinstance(value, (list, deque, set)):
        return Extent("elements", len(value))
    if isinstance(value, ContextVar):
        return repr(value.get(None))
    if isinstance(value, functools._lru_cache_wrapper):
        return Extent("cached results", value.cache_info().currsize)
    if isinstance(value, types.GeneratorType):
        frame = value.gi_frame
        held = {} if frame is None else {k: v for k, v in frame.f_locals.items() if isinstance(v, SCALARS)}
        return Position(hash((frame and frame.f_lasti, repr(held))))
    if can_be_given_again(value):
        return Position(hash(pickle.dumps(value)))
    if isinstance(value, nn.Module) or is_object(value):
        return Made(f"{type(value).__name__}")
    return NOTHING


@dataclass(frozen=True)
class Extent:
    """How much a container holds."""

    unit: str
    count: int

    def __str__(self) -> str:
        return f"{self.count} {self.unit}"


@dataclass(frozen=True)
class Contents:
    """The plain values of a large container."""

    values: Any

    def __str__(self) -> str:
        return f"{len(self.values)} values (mark {zlib.crc32(repr(self.values).encode()):08x})"


@dataclass(frozen=True)
class Position:
    """How far an iterator has come."""

    mark: int

    def __str__(self) -> str:
        return "an iterator"


@dataclass(frozen=True)
class Made:
    """The fact that there is an object of a class."""

    name: str

    def __str__(self) -> str:
        return f"a {self.name}"


class Identity:
    """The identity of an object: equal only to that of the same object."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.value is self.value

    def __str__(self) -> str:
        return f"a {type(self.value).__name__}"
