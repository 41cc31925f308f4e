"""What callers set between the calls of a module, as the source of its classes and functions tells."""

from __future__ import annotations

import ast
import functools
import linecache
import sys
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from rematch.safe.state import State
from rematch.safe.switch import is_named_after_checkpointing
from rematch.safe.values import is_installed, is_library

_ANY = "any attribute"
"""Stands for one whose name is not known before it runs."""


@dataclass
class _Method:
    """What a method does with attributes of its object."""

    reads: set[str] = field(default_factory=set)
    writes: set[str] = field(default_factory=set)
    clears: set[str] = field(default_factory=set)
    """Those that it sets to None."""
    limits: dict[str, list[Any]] = field(default_factory=dict)
    """What it compares some with: numbers, and names of others."""


Places = list[tuple[MutableMapping[str, Any], str, list[float]]]
"""What holds a value, by which name, and the numbers that it is compared with."""


def set_by_callers(state: State) -> dict[str, Places]:
    """Where callers set what forwards read, by name: attributes that forwards do not write and that a method is for, or
    that __init__() leaves at None; context variables; globals that another function of the file sets. What __init__()
    makes is none."""
    found: dict[str, Places] = {}
    for module in state.modules().values():
        for name, limits in _attributes(type(module)).items():
            if isinstance(module.__dict__.get(name, _EMPTY), _VALUES):
                values = [getattr(module, n, None) if isinstance(n, str) else n for n in limits]
                numbers = [n for n in values if isinstance(n, (int, float)) and not isinstance(n, bool)]
                found.setdefault(name, []).append((module.__dict__, name, numbers))
    functions = [f for f in state.functions() if not (is_library(f.__module__) or is_installed(f))]
    for function in functions:
        others = _setters(function.__code__.co_filename).items()
        set_elsewhere = {name for name, by in others if by.isdisjoint(f.__name__ for f in functions)}
        for name in function.__code__.co_names:
            value = function.__globals__.get(name, _EMPTY)
            if isinstance(value, ContextVar) and isinstance(value.get(_EMPTY), _VALUES):
                found[f"the context variable {name}"] = [(_Variable(value), name, [])]
            elif name in set_elsewhere and isinstance(value, _VALUES):
                found[f"the global {name}"] = [(function.__globals__, name, [])]
    return found


class _Variable(dict[str, Any]):
    """A context variable that is read and set like an entry."""

    def __init__(self, variable: ContextVar[Any]) -> None:
        self._variable = variable

    def __getitem__(self, name: str) -> Any:
        return self._variable.get()

    def __setitem__(self, name: str, value: Any) -> None:
        self._variable.set(value)


_VALUES = (Tensor, bool, int, float, str, type(None))
_EMPTY = nn.Module()


@functools.cache
def _attributes(kind: type[nn.Module]) -> dict[str, list[Any]]:
    methods: dict[str, _Method] = {}
    held: set[str] = set()
    for base in kind.__mro__:
        tree = _classes(getattr(sys.modules.get(base.__module__), "__file__", None) or "").get(base.__qualname__)
        # Methods of PyTorch's, and those that packages have beside forwards, such as for saving, are not for callers.
        if is_library(base.__module__) or (is_installed(base) and "forward" not in vars(base)):
            if tree is not None:
                inherited: dict[str, _Method] = {}
                _read_class(tree, inherited, held)
                held |= {name for method in inherited.values() for name in method.writes}
            continue
        if tree is None:
            # Without its source nobody knows who sets what.
            return {}
        _read_class(tree, methods, held)
    forward, made = _reached(methods, "forward"), _reached(methods, "__init__")
    reads = {name for method in forward for name in methods[method].reads}
    if _ANY in reads:
        return {}
    reads -= {name for method in forward for name in methods[method].writes | methods[method].clears}
    # What PyTorch calls as well, such as train() or _apply(), is no method for callers alone.
    others = (m for m in methods if m not in (*forward, *made) and m[:2] != "__" and not hasattr(_EMPTY, m))
    setters = {name for m in others if not is_named_after_checkpointing(m) for name in methods[m].writes}
    written = {name for method in methods.values() for name in method.writes} | held
    left = {name for name in reads - written if getattr(kind, name, None) is None}
    return {
        name: [limit for method in forward for limit in methods[method].limits.get(name, ())]
        for name in sorted(reads & setters | left)
        if not (hasattr(_EMPTY, name) or is_named_after_checkpointing(name))
    }


@functools.cache
def _tree(file: str) -> ast.AST:
    """A file; an empty one where it cannot be read."""
    with suppress(SyntaxError):
        return ast.parse("".join(linecache.getlines(file)))
    return ast.Module([], [])


@functools.cache
def _setters(file: str) -> dict[str, set[str]]:
    """The globals that functions of a file set, each with their names."""
    found: dict[str, set[str]] = {}
    for function in ast.walk(_tree(file)):
        for node in ast.walk(function) if isinstance(function, ast.FunctionDef) else ():
            for name in node.names if isinstance(node, ast.Global) else ():
                found.setdefault(name, set()).add(function.name)
    return found


@functools.cache
def _classes(file: str) -> dict[str, ast.ClassDef]:
    """The classes of a file, by the names that Python gives them."""
    found: dict[str, ast.ClassDef] = {}

    def look(node: ast.AST, place: str) -> None:
        for part in ast.iter_child_nodes(node):
            name = f"{place}{getattr(part, 'name', '')}"
            if isinstance(part, ast.ClassDef):
                found[name] = part
                look(part, f"{name}.")
            elif not isinstance(part, ast.expr):
                look(part, f"{name}.<locals>." if isinstance(part, ast.FunctionDef) else place)

    look(_tree(file), "")
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
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            method.writes.add(name_of(node.value))
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
    """The methods that are called from those of these names, by whatever they read of their object."""
    found, waiting = set(), [name for name in names if name in methods]
    while waiting:
        found.add(name := waiting.pop())
        waiting += [read for read in methods[name].reads if read in methods and read not in found]
    return found


def other_value(value: Any, limits: Sequence[float] = ()) -> Any:
    """Another value of the same kind, of numbers one beyond the first of the limits; the same where none is known."""
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
    """Within, what they hold has other values."""
    held = [(place, name, place[name]) for place, name, _ in places]
    for place, name, limits in places:
        place[name] = other_value(place[name], limits)
    try:
        yield
    finally:
        for place, name, value in held:
            place[name] = value
