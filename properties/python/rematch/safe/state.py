"""All that a forward can reach and change: read as named values, and put back."""

import functools
import itertools
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from rematch.journal.regions import why
from rematch.safe.restore import (
    NOTHING,
    Restore,
    attributes_of,
    class_restorer,
    content_of,
    function_restorer,
    is_of_the_compiler,
    object_restorer,
    restorer,
    tensor_restorer,
)
from rematch.safe.values import (
    GENERATORS,
    MOST_ENTRIES,
    PLAIN,
    SCALARS,
    Contents,
    Extent,
    is_installed,
    is_library,
    is_object,
    is_state,
    is_state_of_a_package,
    leaf_value,
    parts_of,
    plain_values,
)

PARAMETER, BUFFER, ATTRIBUTE = "parameter", "buffer", "attribute"
ARGUMENT, GLOBAL, CLOSURE, CLASS = "argument", "global", "closure", "class attribute"
MODE, GENERATOR, ENVIRONMENT = "mode", "generator", "environment variable"
TAG, RETURNED = "attribute of a tensor", "returned object"
HOOKS = "the hooks of "
"""Begins the name of the number of hooks that a module or a parameter has."""

_MOST_NODES = 200_000
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks", "_state_dict_hooks")


_DEEPEST = 2_000
"""A name longer than this is that of a chain, such as a linked list, which is not followed further."""


@dataclass(frozen=True)
class Leaf:
    """A value that a forward can reach: `kind` is one of the constants above, `owner` the class that holds it."""

    kind: str
    value: Any
    owner: str = ""


class _Node(NamedTuple):
    name: str
    kind: str
    value: Any
    owner: str


class State:
    """The state that is reachable from `roots`, which are modules, functions and other objects by name.

    Functions are looked into: what they close over, the globals that their code names, and what partials and methods
    are bound to. So are the classes of the objects that are found, unless they are PyTorch's or Python's own.
    """

    def __init__(self, roots: Mapping[str, Any]) -> None:
        self.roots = dict(roots)
        self._of_code: dict[types.CodeType, tuple[str, ...]] = {}
        self._of_package: dict[types.CodeType, tuple[str, ...]] = {}
        self._of_kind: dict[type, tuple[int, list[str]]] = {}
        self._classes: set[type] = set()
        self._visited: set[type] = set()
        self.beside: dict[str, Any] = {}
        """Further roots: what the first ones do not reach is read from these as well."""
        self.unrestored: list[str] = []
        """Names of objects that cannot be put back, such as a generator of Python that is half consumed."""
        self.unseen: dict[str, str] = {}
        """Names of objects that cannot be looked at, each with a reason."""
        self._restore: dict[str, Restore] = {}

    def kept(self) -> "State":
        """Records everything as it is now, for restore(), and returns itself."""
        for number, node in enumerate(self._nodes()):
            restore = self._restorer(node)
            if restore is not None:
                self._restore[f"{node.name} {number}"] = restore
        for kind in self._classes:
            own = {name: value for name, value in vars(kind).items() if is_state(value) and name[:2] != "__"}
            self._restore[f"class {kind.__module__}.{kind.__qualname__}"] = class_restorer(kind, own)
        return self

    def restore(self) -> None:
        """Puts everything back as it was when kept() was called."""
        for name, restore in self._restore.items():
            try:
                restore()
            except Exception as error:
                # An object of a user's class, or a tensor that PyTorch does not write to.
                name = name.rpartition(" ")[0]
                self.unrestored += [name] if name not in self.unrestored else []
                self.unseen[f"{name}, which is not put back between runs"] = why(error)

    def modules(self) -> dict[str, nn.Module]:
        """Returns all modules that are reached, by name."""
        return {node.name: node.value for node in self._nodes() if isinstance(node.value, nn.Module)}

    def tensors(self, tags: bool = True) -> dict[str, Tensor]:
        """Returns all tensors that are reached, by name; without `tags`, attributes of tensors are left out."""
        nodes = (node for node in self._nodes() if tags or node.kind != TAG)
        return {node.name: node.value for node in nodes if isinstance(node.value, Tensor)}

    def functions(self) -> list[types.FunctionType]:
        """Returns all functions that are reached."""
        return [node.value for node in self._nodes() if isinstance(node.value, types.FunctionType)]

    def derived(self) -> set[str]:
        """Returns the names of weights that hooks of torch.nn.utils compute before each forward: no outputs."""
        hooks = [(n, hook) for n, m in self.modules().items() for hook in m._forward_pre_hooks.values()]
        return {_dot(n, hook.name) for n, hook in hooks if isinstance(hook, (WeightNorm, SpectralNorm))}

    def trainable(self) -> dict[str, Tensor]:
        """Returns the leaf tensors that can have gradients, by name: parameters above all."""
        return {n: t for n, t in self.tensors().items() if t.is_leaf and t.requires_grad and not is_lazy(t)}

    def leaves(self, of_tensor: Callable[[Tensor], Any]) -> dict[str, Leaf]:
        """Returns the current values by name. `of_tensor` says what is kept of a tensor: a copy, or a hash."""
        found = {}
        for node in self._nodes():
            try:
                value = leaf_value(node.value, of_tensor)
            except Exception as error:
                self.unseen[node.name] = why(error)
                continue
            if value is not NOTHING:
                found[node.name] = Leaf(_kind(node), value, node.owner)
            if isinstance(node.value, (dict, list, tuple, deque)) and len(node.value) > MOST_ENTRIES:
                found[f"what {node.name} holds"] = Leaf(_kind(node), Contents(plain_values(node.value)), node.owner)
            if node.kind == PARAMETER and isinstance(node.value, Tensor):
                found[f"{node.name}.requires_grad"] = Leaf(ATTRIBUTE, node.value.requires_grad, node.owner)
            if isinstance(node.value, nn.Module) or (node.kind == PARAMETER and isinstance(node.value, Tensor)):
                count = Extent("hooks", _hooks_of(node.value))
                found[HOOKS + (node.name or "the module")] = Leaf(ATTRIBUTE, count, node.owner)
        return found

    def _nodes(self) -> Iterator[_Node]:
        seen: set[int] = set()
        alive: list[Any] = []
        first: dict[str, Any] = {}
        self._visited.clear()
        waiting = deque(_Node(name, ATTRIBUTE, value, "") for name, value in self.roots.items())
        later = deque(_Node(name, CLOSURE, value, "") for name, value in self.beside.items())
        while waiting or later:
            node = (waiting or later).popleft()
            value = node.value
            if not isinstance(value, SCALARS):
                if id(value) in seen:
                    continue
                seen.add(id(value))
                alive.append(value)
            if len(alive) > _MOST_NODES:
                return
            beside = node.kind in (GLOBAL, CLOSURE) and hasattr(type(self.roots.get("")), node.name)
            if node.name not in first and not beside:
                first[node.name] = value
            elif is_state(value):
                # A global may be called like an attribute, also one that the first forward makes, and a variable of
                # one function like that of another.
                if beside or is_state(first[node.name]):
                    others = (f"{node.name} ({n})" for n in itertools.count(2))
                    node = node._replace(name=next(name for name in others if name not in first))
                first[node.name] = value
            yield node
            kind = type(value)
            if kind in PLAIN or (kind in (Tensor, nn.Parameter) and not value.__dict__):
                continue
            if len(node.name) > _DEEPEST:
                self.unseen[f"{node.name[:40]}..."] = "the chain of objects is too long"
                continue
            try:
                waiting.extend(self._below(node))
            except Exception as error:
                self.unseen[node.name] = why(error)

    def _below(self, node: _Node) -> Iterator[_Node]:
        value, name = node.value, node.name
        if isinstance(value, nn.Module):
            yield from self._of_module(node)
        elif isinstance(value, types.FunctionType):
            yield from self._of_function(node, value)
        elif isinstance(value, types.MethodType):
            yield node._replace(value=value.__self__)
            yield node._replace(value=value.__func__)
        elif isinstance(value, functools.partial):
            for part in (value.func, *value.args):
                yield node._replace(value=part)
            for key, part in value.keywords.items():
                yield node._replace(name=_dot(name, key), value=part)
        elif isinstance(value, functools._lru_cache_wrapper):
            yield node._replace(value=value.__wrapped__)
        elif isinstance(value, Mapping):
            for key, part in parts_of(value):
                yield _Node(f"{name}[{key!r}]", node.kind, part, node.owner)
        elif isinstance(value, (list, tuple, deque)):
            for index, part in parts_of(value):
                yield _Node(f"{name}[{index}]", node.kind, part, node.owner)
        elif isinstance(value, Tensor):
            for key, part in list(value.__dict__.items()):
                if not (is_of_the_compiler(key) or (value.is_nested and key.startswith("_"))):
                    yield _Node(_dot(name, key), TAG, part, type(value).__name__)
            if type(value) is not Tensor and type(value) is not nn.Parameter and not is_library(type(value).__module__):
                yield from self._of_class(type(value))
        elif isinstance(value, types.CellType):
            yield node._replace(value=content_of(value))
        elif is_object(value):
            owner = type(value).__name__
            for key, part in attributes_of(value).items():
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
            if base in self._visited or is_library(base.__module__):
                continue
            self._visited.add(base)
            self._classes.add(base)
            for key in self._parts_of_class(base):
                part = vars(base)[key]
                if isinstance(part, (staticmethod, classmethod)):
                    part = part.__func__
                if isinstance(part, property):
                    part = part.fget
                if isinstance(part, types.FunctionType):
                    yield _Node(base.__name__, GLOBAL, part, base.__name__)
                elif is_state(part):
                    yield _Node(f"{base.__name__}.{key}", CLASS, part, base.__name__)

    def _parts_of_class(self, kind: type) -> list[str]:
        """Returns the attributes of a class that lead to functions or state. Those of a class in an installed package
        are searched again only after one was added."""
        own = vars(kind)
        count, names = self._of_kind.get(kind, (-1, []))
        if count != len(own):
            called = ("__init__", "__call__", "__torch_function__")
            names = [key for key in own if not key.startswith("__") or key in called]
            if is_installed(kind):
                leads = (staticmethod, classmethod, property, types.FunctionType)
                names = [key for key in names if isinstance(own[key], leads) or is_state(own[key])]
                self._of_kind[kind] = len(own), names
        return names

    def _of_function(self, node: _Node, function: types.FunctionType) -> Iterator[_Node]:
        if (function.__module__ or "").startswith("rematch.safe"):
            # A hook of the watcher.
            return
        scope, names = function.__globals__, self._globals_of(function)
        if not (names or function.__closure__ or function.__dict__ or function.__defaults__ or function.__kwdefaults__):
            return
        for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            value = content_of(cell)
            if isinstance(value, type):
                yield from self._of_class(value)
            else:
                yield _Node(variable, CLOSURE, value, "")
        for key, part in function.__dict__.items():
            if (is_state(part) or callable(part)) and not is_of_the_compiler(key):
                yield _Node(f"{function.__name__}.{key}", ATTRIBUTE, part, "")
        for part in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            if not isinstance(part, SCALARS) and (is_state(part) or isinstance(part, types.FunctionType)):
                yield _Node(f"a default of {function.__name__}()", GLOBAL, part, "")
        installed = is_installed(function)
        for variable in names:
            value = scope.get(variable, NOTHING)
            if value is NOTHING or (installed and not is_state_of_a_package(value)):
                continue
            if isinstance(value, types.FunctionType) and is_library(value.__module__):
                continue
            if isinstance(value, type) and not is_library(value.__module__):
                yield from self._of_class(value)
            if is_state(value) or isinstance(value, (types.FunctionType, functools.partial, types.MethodType)):
                yield _Node(variable, GLOBAL, value, "")

    def _globals_of(self, function: types.FunctionType) -> tuple[str, ...]:
        """Returns the names of the globals that are looked at. In installed packages only state is looked at, and its
        names are searched once: a module or a function there does not become state."""
        if is_library(function.__module__):
            return ()
        names, scope = self._names_of(function.__code__), function.__globals__
        if not is_installed(function):
            return tuple(name for name in names if not name.startswith("__"))
        known = self._of_package.get(function.__code__)
        if known is None:
            fixed = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, type)
            own = (name for name in names if not name.startswith("__"))
            known = tuple(name for name in own if name in scope and not isinstance(scope[name], fixed))
            self._of_package[function.__code__] = known
        return known

    def _names_of(self, code: types.CodeType) -> tuple[str, ...]:
        if code not in self._of_code:
            names = dict.fromkeys(code.co_names)
            for inner in code.co_consts:
                if isinstance(inner, types.CodeType):
                    names.update(dict.fromkeys(self._names_of(inner)))
            self._of_code[code] = tuple(names)
        return self._of_code[code]

    def _restorer(self, node: _Node) -> Restore | None:
        value = node.value
        try:
            if isinstance(value, types.FunctionType):
                names = () if is_library(value.__module__) else self._names_of(value.__code__)
                scope = value.__globals__
                return function_restorer(value, {n: scope[n] for n in names if n in scope and not n.startswith("__")})
            if isinstance(value, functools._lru_cache_wrapper):
                return value.cache_clear
            if isinstance(value, nn.Module) or is_object(value):
                return object_restorer(value)
            return tensor_restorer(value) if isinstance(value, Tensor) else restorer(value)
        except Exception:
            self.unrestored.append(node.name)
            return None


_EMPTY = nn.Module()


def _hooks_of(value: nn.Module | Tensor) -> int:
    if isinstance(value, Tensor):
        return len(value._backward_hooks or ()) + len(getattr(value, "_post_accumulate_grad_hooks", None) or ())
    return sum(len(value.__dict__.get(hooks, ())) for hooks in _HOOKS)


def _dot(name: str, part: str) -> str:
    return f"{name}.{part}" if name else part


def _kind(node: _Node) -> str:
    if isinstance(node.value, GENERATORS):
        return GENERATOR
    if node.name.endswith("training") and isinstance(node.value, bool):
        return MODE
    return node.kind
