"""Finds what callers set between the calls of a module, from the source of its classes and functions."""

import ast
import functools
import linecache
import re
import sys
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from rematch.safe.restore import content_of
from rematch.safe.state import State
from rematch.safe.switch import is_named_after_checkpointing
from rematch.safe.values import is_installed, is_library, parts_of

_ANY = "any attribute"
"""Stands for an attribute whose name is known only at run time."""


@dataclass
class _Method:
    """What a method does with attributes of its object, by name."""

    reads: set[str] = field(default_factory=set)
    writes: set[str] = field(default_factory=set)
    clears: set[str] = field(default_factory=set)
    """Attributes that it sets to None."""
    limits: dict[str, list[Any]] = field(default_factory=dict)
    """Attributes that it compares, each with the other operands: numbers, or names of other attributes."""


Places = list[tuple[MutableMapping[str, Any], str, list[float]]]
"""Where a value is held: the container, the key, and the numbers that forwards compare the value with."""


def set_by_callers(state: State) -> dict[str, Places]:
    """Returns, by name, where callers set values that forwards read: attributes and buffers that no forward writes, and
    that another method writes or __init__() leaves at None; context variables; globals and closure variables that
    another function of the file sets; and the entries of those that are dictionaries or lists. What __init__() makes is
    left out."""
    found: dict[str, Places] = {}
    for module in state.modules().values():
        for name, (limits, has_setter) in _attributes(type(module)).items():
            values = [getattr(module, n, None) if isinstance(n, str) else n for n in limits]
            numbers = [n for n in values if isinstance(n, (int, float)) and not isinstance(n, bool)]
            # A buffer that no method sets is a constant.
            for place in (module.__dict__, *([module._buffers] if has_setter else [])):
                found.setdefault(name, []).extend((*held, numbers) for held in _held(place, name))
    functions = [f for f in state.functions() if not (is_library(f.__module__) or is_installed(f))]
    for function in functions:
        others = _setters(function.__code__.co_filename).items()
        set_elsewhere = {name for name, by in others if by.isdisjoint(f.__name__ for f in functions)}
        for name in function.__code__.co_names:
            value = function.__globals__.get(name, _EMPTY)
            if isinstance(value, ContextVar) and isinstance(value.get(_EMPTY), _VALUES):
                found[f"the context variable {name}"] = [(_Variable(value.get, value.set), name, [])]
            elif name in set_elsewhere:
                found[f"the global {name}"] = [(*held, []) for held in _held(function.__globals__, name)]
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            if name in set_elsewhere:
                place = _Variable(partial(content_of, cell), partial(setattr, cell, "cell_contents"))
                found[f"the variable {name}"] = [(*held, []) for held in _held(place, name)]
    return {name: places for name, places in found.items() if places}


class _Variable(dict[str, Any]):
    """A variable that can be read and set like an entry of a dictionary."""

    def __init__(self, read: Callable[[], Any], write: Callable[[Any], Any]) -> None:
        self._read, self._write = read, write

    def get(self, name: str, default: Any = None) -> Any:
        return self._read()

    def __getitem__(self, name: str) -> Any:
        return self._read()

    def __setitem__(self, name: str, value: Any) -> None:
        self._write(value)


def _held(place: Any, name: str) -> list[tuple[Any, Any]]:
    """Returns where the value called `name` is: in `place`, or in the dictionary or list that `place` holds there."""
    value = place.get(name, _EMPTY)
    if isinstance(value, (dict, list)) and len(value):
        parts = [(value, key) for key, part in parts_of(value) if isinstance(part, _VALUES)]
        return parts if len(parts) <= _MOST_PARTS else []
    return [(place, name)] if isinstance(value, (*_VALUES, dict, list)) else []


_VALUES = (Tensor, bool, int, float, str, type(None))
_EMPTY = nn.Module()
_MOST_PARTS = 8


@functools.cache
def _attributes(kind: type[nn.Module]) -> dict[str, tuple[list[Any], bool]]:
    """Attributes that callers set, each with what forwards compare it with, and whether a method sets it."""
    methods: dict[str, _Method] = {}
    held: set[str] = set()
    for base in kind.__mro__:
        tree = _classes(getattr(sys.modules.get(base.__module__), "__file__", None) or "").get(base.__qualname__)
        # Methods of PyTorch, and those that packages have beside forwards, such as for saving, are not for callers.
        if is_library(base.__module__) or (is_installed(base) and "forward" not in vars(base)):
            if tree is not None:
                inherited: dict[str, _Method] = {}
                _read_class(tree, inherited, held)
                held |= {name for method in inherited.values() for name in method.writes}
            continue
        if tree is None:
            # Without the source it is not known who sets what.
            return {}
        _read_class(tree, methods, held)
    forward, made = _reached(methods, "forward"), _reached(methods, "__init__")
    reads = {name for method in forward for name in methods[method].reads}
    if _ANY in reads:
        return {}
    reads -= {name for method in forward for name in methods[method].writes | methods[method].clears}
    # A method that PyTorch calls as well, such as train() or _apply(), is not for callers alone.
    others = (m for m in methods if m not in (*forward, *made) and m[:2] != "__" and not hasattr(_EMPTY, m))
    setters = {name for m in others if not is_named_after_checkpointing(m) for name in methods[m].writes}
    written = {name for method in methods.values() for name in method.writes} | held
    left = {name for name in reads - written if getattr(kind, name, None) is None}
    return {
        name: ([limit for method in forward for limit in methods[method].limits.get(name, ())], name in setters)
        for name in sorted(reads & setters | left)
        if not (hasattr(_EMPTY, name) or is_named_after_checkpointing(name))
    }


@functools.cache
def tree_of(file: str) -> ast.AST:
    """Returns the syntax tree of a Python file; an empty one if it cannot be read."""
    with suppress(SyntaxError):
        return ast.parse("".join(linecache.getlines(file)))
    return ast.Module([], [])


@functools.cache
def _setters(file: str) -> dict[str, set[str]]:
    """Returns the globals and outer variables that functions of a file set, each with the names of these functions."""
    found: dict[str, set[str]] = {}
    for function in ast.walk(tree_of(file)):
        for node in ast.walk(function) if isinstance(function, ast.FunctionDef) else ():
            names = node.names if isinstance(node, (ast.Global, ast.Nonlocal)) else []
            for name in [*names, *(part.id for part in _written_inside(node) if isinstance(part, ast.Name))]:
                found.setdefault(name, set()).add(function.name)
    return found


def _written_inside(node: ast.AST) -> list[ast.expr]:
    """Returns what a statement changes without rebinding it: it sets an entry of it, or calls a method of it."""
    if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
        return [node.value]
    called = node.func if isinstance(node, ast.Call) else None
    if isinstance(called, ast.Attribute) and (called.attr in _CHANGE or re.search("[^_]_$", called.attr)):
        return [called.value]
    return []


_CHANGE = ("update", "append", "extend", "insert", "clear", "pop", "setdefault")


@functools.cache
def _classes(file: str) -> dict[str, ast.ClassDef]:
    """Returns the classes of a file by their qualified names."""
    found: dict[str, ast.ClassDef] = {}

    def look(node: ast.AST, place: str) -> None:
        for part in ast.iter_child_nodes(node):
            name = f"{place}{getattr(part, 'name', '')}"
            if isinstance(part, ast.ClassDef):
                found[name] = part
                look(part, f"{name}.")
            elif not isinstance(part, ast.expr):
                look(part, f"{name}.<locals>." if isinstance(part, ast.FunctionDef) else place)

    look(tree_of(file), "")
    return found


def _read_class(tree: ast.ClassDef, methods: dict[str, _Method], held: set[str]) -> None:
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.args.args:
            # The setter of a property has the name of its getter.
            sets = any(isinstance(by, ast.Attribute) and by.attr == "setter" for by in node.decorator_list)
            _read_method(node, methods.setdefault(f"{node.name} =" if sets else node.name, _Method()))
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and not _is_none(node.value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            held.update(target.id for target in targets if isinstance(target, ast.Name) and node.value is not None)


def _read_method(function: ast.FunctionDef | ast.AsyncFunctionDef, method: _Method) -> None:
    me = function.args.args[0].arg

    def name_of(node: ast.AST) -> str:
        own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == me
        return node.attr if own and isinstance(node, ast.Attribute) else ""

    cleared = set()
    for node in ast.walk(function):
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                pairs = [(target, node.value)]
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    pairs = list(zip(target.elts, node.value.elts, strict=False))
                cleared.update(id(part) for part, value in pairs if _is_none(value))
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            others = [side.value if isinstance(side, ast.Constant) else name_of(side) for side in sides]
            for name in filter(None, map(name_of, sides)):
                method.limits.setdefault(name, []).extend(other for other in others if other != name)
        method.writes.update(map(name_of, _written_inside(node)))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("setattr", "delattr"):
            name = node.args[1] if len(node.args) > 1 else None
            if isinstance(name, ast.Constant):
                method.writes.add(str(name.value))
            else:
                method.reads.add(_ANY)
        if (name := name_of(node)) and isinstance(node, ast.Attribute):
            stored = method.clears if id(node) in cleared else method.writes
            (method.reads if isinstance(node.ctx, ast.Load) else stored).add(name)


def _is_none(value: ast.AST | None) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def _reached(methods: dict[str, _Method], *names: str) -> set[str]:
    """Returns the methods that `names` call, directly or through other methods: all that they read of their object."""
    found, waiting = set(), [name for name in names if name in methods]
    while waiting:
        found.add(name := waiting.pop())
        waiting += [read for read in methods[name].reads if read in methods and read not in found]
    return found


def other_value(value: Any, limits: Sequence[float] = ()) -> Any:
    """Returns another value of the same kind, a number beyond the first of `limits`; `value` if none is known."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, float) and 0 <= value <= 1 and not limits:
        # It may be a probability.
        return value / 2 or 0.5
    if isinstance(value, (int, float)):
        limit = limits[0] if limits else value
        return type(value)(limit + 1 if value <= limit else limit - 1)
    if not isinstance(value, Tensor) or value.layout != torch.strided:
        return value
    if value.dtype == torch.bool:
        return ~value
    rolled = value.flatten().roll(1).view(value.shape)
    if not torch.equal(rolled, value):
        return rolled
    return value * 0.5 + 1 if value.is_floating_point() else value


@contextmanager
def set_anew(places: Places) -> Iterator[None]:
    """Within, the values at `places` are replaced by other values."""
    held = [(place, name, place[name]) for place, name, _ in places]
    for place, name, limits in places:
        place[name] = other_value(place[name], limits)
    try:
        yield
    finally:
        for place, name, value in held:
            place[name] = value
