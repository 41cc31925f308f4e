"""All that a forward can reach and change: read as values with names, and put back as it was."""

from __future__ import annotations

import copy
import dataclasses
import functools
import os
import random
import sys
import threading
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

PARAMETER, BUFFER, ATTRIBUTE = "parameter", "buffer", "attribute"
ARGUMENT, GLOBAL, CLOSURE, CLASS = "argument", "global", "closure", "class attribute"
MODE, GENERATOR, ENVIRONMENT = "mode", "generator", "environment variable"

_LIBRARY = {"torch", "numpy", "rematch", "pytest", "_pytest", "transformers.utils", *sys.stdlib_module_names} - {
    "__main__"
}
_SCALARS = (int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
_MOST_NODES = 200_000
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks", "_state_dict_hooks")


@dataclass(frozen=True)
class Leaf:
    """A value that a forward can reach: `kind` is one of the constants above, `module` the class that holds it."""

    kind: str
    value: Any
    owner: str = ""


@dataclass(frozen=True)
class _Node:
    name: str
    kind: str
    value: Any
    owner: str


def is_library(name: str | None) -> bool:
    """Whether a module of this name is PyTorch's or Python's own: its globals are not looked into."""
    name = name or ""
    return name.split(".")[0] in _LIBRARY or ".".join(name.split(".")[:2]) in _LIBRARY


class State:
    """The state that starts at `roots`: modules, functions and what they hold, by name.

    Functions are looked into: what they close over, the globals that their code names, and what
    partials and methods are bound to. So are the classes of what is found, as far as they are
    neither PyTorch's nor Python's own.
    """

    def __init__(self, roots: Mapping[str, Any]) -> None:
        self.roots = dict(roots)
        self._of_code: dict[types.CodeType, tuple[str, ...]] = {}
        self._restore: list[Callable[[], None]] = []
        self.unrestored: list[str] = []
        """Names of what cannot be put back, such as a generator of Python that is half consumed."""
        self._keep = [self._restorer(node) for node in self._nodes()]
        self._restore = [restore for restore in self._keep if restore is not None]
        environment = _environment()
        self._restore.append(lambda: _put_environment(environment))

    def restore(self) -> None:
        """Puts everything back as it was when this object was made."""
        for restore in self._restore:
            restore()

    def modules(self) -> dict[str, nn.Module]:
        """All modules that are reached, by name."""
        return {node.name: node.value for node in self._nodes() if isinstance(node.value, nn.Module)}

    def tensors(self) -> dict[str, Tensor]:
        """All tensors that are reached, by name."""
        return {node.name: node.value for node in self._nodes() if isinstance(node.value, Tensor)}

    def trainable(self) -> dict[str, Tensor]:
        """The leaves that can have gradients: parameters above all."""
        return {n: t for n, t in self.tensors().items() if t.is_leaf and t.requires_grad}

    def leaves(self, of_tensor: Callable[[Tensor], Any]) -> dict[str, Leaf]:
        """The values now, by name. `of_tensor` says what is kept of a tensor: a copy, or a hash."""
        found = {}
        for node in self._nodes():
            value = _leaf_value(node.value, of_tensor)
            if value is not _NOTHING:
                found[node.name] = Leaf(_kind(node), value, node.owner)
        for key, text in _environment().items():
            found[f"os.environ[{key!r}]"] = Leaf(ENVIRONMENT, text)
        return found

    def _nodes(self) -> Iterator[_Node]:
        seen: set[int] = set()
        alive: list[Any] = []
        waiting = deque(_Node(name, ATTRIBUTE, value, "") for name, value in self.roots.items())
        while waiting:
            node = waiting.popleft()
            value = node.value
            if not isinstance(value, _SCALARS):
                if id(value) in seen:
                    continue
                seen.add(id(value))
                alive.append(value)
            if len(alive) > _MOST_NODES:
                return
            yield node
            waiting.extend(self._below(node))

    def _below(self, node: _Node) -> Iterator[_Node]:
        value, name = node.value, node.name
        if isinstance(value, nn.Module):
            yield from self._of_module(node)
        elif isinstance(value, types.FunctionType):
            yield from self._of_function(node, value)
        elif isinstance(value, types.MethodType):
            yield dataclasses.replace(node, value=value.__self__)
            yield dataclasses.replace(node, value=value.__func__)
        elif isinstance(value, functools.partial):
            for part in (value.func, *value.args):
                yield dataclasses.replace(node, value=part)
            for key, part in value.keywords.items():
                yield dataclasses.replace(node, name=_dot(name, key), value=part)
        elif isinstance(value, functools._lru_cache_wrapper):
            yield dataclasses.replace(node, value=value.__wrapped__)
        elif isinstance(value, Mapping):
            for key, part in list(value.items()):
                yield _Node(f"{name}[{key!r}]", node.kind, part, node.owner)
        elif isinstance(value, (list, tuple, deque)):
            for index, part in enumerate(value):
                yield _Node(f"{name}[{index}]", node.kind, part, node.owner)
        elif isinstance(value, Tensor):
            if type(value) is not Tensor and type(value) is not nn.Parameter and not is_library(type(value).__module__):
                yield from self._of_class(type(value))
        elif isinstance(value, types.CellType):
            yield dataclasses.replace(node, value=_content(value))
        elif _is_object(value):
            owner = type(value).__name__
            for key, part in _attributes(value).items():
                yield _Node(_dot(name, key), node.kind, part, owner)
            yield from self._of_class(type(value))

    def _of_module(self, node: _Node) -> Iterator[_Node]:
        module, name, owner = node.value, node.name, type(node.value).__name__
        hidden = {"_parameters": PARAMETER, "_buffers": BUFFER, "_modules": ATTRIBUTE}
        for key, part in list(module.__dict__.items()):
            if key in hidden:
                for inner, value in list(part.items()):
                    yield _Node(_dot(name, inner), hidden[key], value, owner)
            elif key in _HOOKS:
                for hook in list(part.values()):
                    yield _Node(f"{name} (hook)", ATTRIBUTE, hook, owner)
            elif not key.startswith("_") or not hasattr(_EMPTY, key):
                yield _Node(_dot(name, key), ATTRIBUTE, part, owner)
        yield from self._of_class(type(module))

    def _of_class(self, kind: type) -> Iterator[_Node]:
        for base in kind.__mro__:
            if is_library(base.__module__):
                continue
            for key, part in list(vars(base).items()):
                if key.startswith("__") and key != "__init__" and key != "__call__" and key != "__torch_function__":
                    continue
                if isinstance(part, (staticmethod, classmethod)):
                    part = part.__func__
                if isinstance(part, property):
                    part = part.fget
                if isinstance(part, types.FunctionType):
                    yield _Node(base.__name__, GLOBAL, part, base.__name__)
                elif _is_state(part):
                    yield _Node(f"{base.__name__}.{key}", CLASS, part, base.__name__)

    def _of_function(self, node: _Node, function: types.FunctionType) -> Iterator[_Node]:
        for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            value = _content(cell)
            if not isinstance(value, type):
                yield _Node(variable, CLOSURE, value, "")
        for key, part in function.__dict__.items():
            if _is_state(part) or callable(part):
                yield _Node(f"{function.__name__}.{key}", ATTRIBUTE, part, "")
        for part in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            if not isinstance(part, _SCALARS) and _is_state(part):
                yield _Node(f"a default of {function.__name__}()", GLOBAL, part, "")
        if is_library(function.__module__):
            return
        scope = function.__globals__
        for variable in self._names_of(function.__code__):
            if variable not in scope or variable.startswith("__"):
                continue
            value = scope[variable]
            if isinstance(value, types.FunctionType) and is_library(value.__module__):
                continue
            if isinstance(value, type) and not is_library(value.__module__):
                yield from self._of_class(value)
            if _is_state(value) or isinstance(value, (types.FunctionType, functools.partial, types.MethodType)):
                yield _Node(variable, GLOBAL, value, "")

    def _names_of(self, code: types.CodeType) -> tuple[str, ...]:
        if code not in self._of_code:
            names = dict.fromkeys(code.co_names)
            for inner in code.co_consts:
                if isinstance(inner, types.CodeType):
                    names.update(dict.fromkeys(self._names_of(inner)))
            self._of_code[code] = tuple(names)
        return self._of_code[code]

    def _restorer(self, node: _Node) -> Callable[[], None] | None:
        value = node.value
        if isinstance(value, Tensor):
            return _tensor_restorer(value)
        if isinstance(value, types.FunctionType):
            return self._function_restorer(value)
        if isinstance(value, functools._lru_cache_wrapper):
            return value.cache_clear
        if isinstance(value, nn.Module) or _is_object(value):
            return _object_restorer(value)
        if _can_be_given_again(value):
            return None
        maker = next((make for kind, make in _RESTORERS if isinstance(value, kind)), None)
        if maker is None:
            return None
        try:
            return maker(value)
        except TypeError:
            self.unrestored.append(node.name)
            return None

    def _function_restorer(self, function: types.FunctionType) -> Callable[[], None]:
        cells = [(cell, _content(cell)) for cell in function.__closure__ or ()]
        scope = function.__globals__
        names = () if is_library(function.__module__) else self._names_of(function.__code__)
        values = {n: scope[n] for n in names if n in scope and not n.startswith("__")}

        def restore() -> None:
            for cell, content in cells:
                if _content(cell) is not content:
                    cell.cell_contents = content
            for variable, value in values.items():
                if scope.get(variable) is not value:
                    scope[variable] = value

        return restore


_EMPTY = nn.Module()
_NOTHING = object()


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _dot(name: str, part: str) -> str:
    return f"{name}.{part}" if name else part


def _attributes(value: Any) -> dict[str, Any]:
    found = dict(getattr(value, "__dict__", {}))
    for base in type(value).__mro__:
        slots = base.__dict__.get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            if hasattr(value, slot) and not slot.startswith("__"):
                found[slot] = getattr(value, slot)
    return found


def _is_object(value: Any) -> bool:
    """Whether this is an object of a class that is not a library's: its attributes are looked into."""
    if isinstance(value, (type, types.ModuleType, types.BuiltinFunctionType, nn.Module, Tensor, BaseException)):
        return False
    if isinstance(value, threading.local):
        return True
    return not is_library(type(value).__module__) and not callable(getattr(value, "__wrapped__", None))


def _is_state(value: Any) -> bool:
    kinds = (nn.Module, Tensor, np.ndarray, Mapping, list, set, deque, *_SCALARS, *(kind for kind, _ in _RESTORERS))
    return isinstance(value, kinds) or _is_object(value) or isinstance(value, functools._lru_cache_wrapper)


def _kind(node: _Node) -> str:
    if isinstance(node.value, (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)):
        return GENERATOR
    if node.name.endswith("training") and isinstance(node.value, bool):
        return MODE
    return node.kind


def _leaf_value(value: Any, of_tensor: Callable[[Tensor], Any]) -> Any:
    """What of a value is compared; _NOTHING where its parts are compared instead."""
    if isinstance(value, Tensor):
        return of_tensor(value)
    if isinstance(value, _SCALARS):
        return value
    if isinstance(value, torch.Generator):
        return of_tensor(value.get_state())
    if isinstance(value, np.ndarray):
        return value.copy() if value.dtype != object else _NOTHING
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
    if isinstance(value, nn.Module) or _is_object(value):
        return Made(f"{type(value).__name__}")
    return _NOTHING


@dataclass(frozen=True)
class Extent:
    """How much a container holds."""

    unit: str
    count: int

    def __str__(self) -> str:
        return f"{self.count} {self.unit}"


@dataclass(frozen=True)
class Made:
    """That there is an object of a class."""

    name: str

    def __str__(self) -> str:
        return f"a {self.name}"


def _tensor_restorer(t: Tensor) -> Callable[[], None]:
    if not t.is_leaf or t.device.type == "meta":
        return lambda: None
    saved, grad, flag = t.detach().clone(), t.grad, t.requires_grad
    content = None if grad is None else grad.detach().clone()
    attributes = dict(t.__dict__)

    def restore() -> None:
        with torch.no_grad():
            if t.shape == saved.shape and t.dtype == saved.dtype:
                t.data.copy_(saved)
            else:
                t.data = saved.clone()
            t.requires_grad_(flag)
            t.grad = grad
            if content is not None and grad is not None:
                grad.data.copy_(content)
        if t.__dict__ != attributes:
            t.__dict__.clear()
            t.__dict__.update(attributes)

    return restore


def _object_restorer(value: Any) -> Callable[[], None]:
    attributes = _attributes(value)
    inner = [_container_restorer(part) for part in attributes.values() if isinstance(part, (OrderedDict, dict, set))]
    own = getattr(value, "__dict__", None)
    kept = {} if own is None else dict(own)
    given = {key: copy.copy(part) for key, part in kept.items() if _can_be_given_again(part)}

    def restore() -> None:
        if own is not None and len(own) == len(kept) and all(own.get(k) is v for k, v in kept.items()):
            pass
        elif own is not None:
            own.clear()
            own.update(kept)
        for slot, part in attributes.items():
            if slot not in kept:
                setattr(value, slot, part)
        for key, part in given.items():
            own[key] = copy.copy(part)  # type: ignore[index]
        for put in inner:
            put()

    return restore


def _can_be_given_again(value: Any) -> bool:
    """Whether this is an iterator that has copies, as those of lists have."""
    if not isinstance(value, Iterator) or isinstance(value, types.GeneratorType) or hasattr(value, "read"):
        return False
    try:
        copy.copy(value)
    except TypeError:
        return False
    return True


def _container_restorer(value: Any) -> Callable[[], None]:
    content = copy.copy(value) if not isinstance(value, Mapping) else dict(value)

    def restore() -> None:
        if isinstance(value, list):
            value[:] = content
        elif isinstance(value, dict):
            if len(value) != len(content) or any(value.get(k, _NOTHING) is not v for k, v in content.items()):
                value.clear()
                value.update(content)
        elif isinstance(value, (set, deque)):
            value.clear()
            (value.update if isinstance(value, set) else value.extend)(content)

    return restore


def _array_restorer(value: np.ndarray) -> Callable[[], None]:
    content = value.copy()
    return lambda: np.copyto(value, content) if value.flags.writeable else None


def _generator_restorer(value: torch.Generator) -> Callable[[], None]:
    state = value.get_state()
    return lambda: value.set_state(state) and None


def _numpy_restorer(value: Any) -> Callable[[], None]:
    if isinstance(value, np.random.RandomState):
        state = value.get_state()
        return lambda: value.set_state(state)
    bits, kept = value.bit_generator, copy.deepcopy(value.bit_generator.state)
    return lambda: setattr(bits, "state", copy.deepcopy(kept))


def _random_restorer(value: random.Random) -> Callable[[], None]:
    state = value.getstate()
    return lambda: value.setstate(state)


def _variable_restorer(value: ContextVar[Any]) -> Callable[[], None]:
    content = value.get(_NOTHING)
    return lambda: value.set(None if content is _NOTHING else content) and None


def _iterator_restorer(value: Any) -> Callable[[], None]:
    raise TypeError("what an iterator has given is gone")


_RESTORERS: tuple[tuple[Any, Callable[[Any], Callable[[], None]]], ...] = (
    (torch.Generator, _generator_restorer),
    ((np.random.Generator, np.random.RandomState), _numpy_restorer),
    (random.Random, _random_restorer),
    (ContextVar, _variable_restorer),
    (np.ndarray, _array_restorer),
    ((list, dict, set, deque), _container_restorer),
    ((types.GeneratorType, Iterator), _iterator_restorer),
)


def _environment() -> dict[str, str]:
    """Variables of the environment but those that PyTorch and pytest set for themselves."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("TORCH", "PYTORCH", "PYTEST", "TRITON", "CUDA"))}


def _put_environment(kept: dict[str, str]) -> None:
    now = _environment()
    for key in now.keys() - kept.keys():
        del os.environ[key]
    os.environ.update({key: text for key, text in kept.items() if now.get(key) != text})
