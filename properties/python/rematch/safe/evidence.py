"""A watched run: what each region computed, what it found when it began, and what it left."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import FunctionType
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten
from torch.utils.checkpoint import _CachedTorchDispatchMode, _CachingTorchDispatchMode

from rematch.safe.ambient import ambient
from rematch.safe.compare import Change, changes
from rematch.safe.fork import Fork, Op, fork_of
from rematch.safe.parts import storages, strided_parts
from rematch.safe.regions import Region, Regions
from rematch.safe.restore import content_of
from rematch.safe.run import Seen, Target, named_arguments, random_leaves, run
from rematch.safe.scenarios import Scenario, Variant
from rematch.safe.state import ARGUMENT, CLOSURE, GENERATOR, TAG, Extent, Leaf, State, hooked

WHICH = " (which object)"
"""Ends the name of a variable of which the object is compared."""


@dataclass
class Execution:
    """A region that ran: a forward, or a recomputation."""

    recomputes: bool
    reentrant: bool
    entry: dict[str, Leaf]
    ambient: dict[str, Any]
    exit: dict[str, Leaf] = field(default_factory=dict)
    left: dict[str, Any] = field(default_factory=dict)
    """Like `ambient`, at its end."""
    seeded: set[str] = field(default_factory=set)
    """The generators that it gave a seed: "numpy", "random"."""
    reads: tuple[str, ...] = ()
    """What it read of the clock and the randomness of the system, where a tape replaces them."""
    nested: str = ""
    """The first floating tensor that it returned within a container, by name."""
    takes_grad: bool = False
    """An argument is a tensor that requires grad."""
    nested_grad: bool = False
    """A tensor that requires grad is an argument, or within one."""
    ops: list[Op] = field(default_factory=list)
    made: set[int] = field(default_factory=set)

    @cached_property
    def changed(self) -> list[Change]:
        """What it changed."""
        return changes(self.entry, self.exit)


@dataclass
class Evidence:
    """All that is known of a difference, for the rules that name causes."""

    target: Target
    scenario: Scenario
    variant: Variant
    plain: Seen
    seen: Seen
    differences: list[Change]
    forward: Execution | None = None
    again: Execution | None = None
    fork: Fork | None = None
    kinds: dict[str, str] = field(default_factory=dict)
    """The class of each submodule by name."""
    right_otherwise: bool = False
    """Without the selective policy or the offloading of this scenario, outputs and gradients are those of the plain
    run."""

    @property
    def error(self) -> str:
        return self.seen.error

    @property
    def reentrant(self) -> bool:
        return self.forward.reentrant if self.forward is not None else self.variant.reentrant

    @cached_property
    def entered(self) -> list[Change]:
        """What a recomputation found changed, compared with what its forward found."""
        if self.forward is None or self.again is None:
            return []
        return changes(self.forward.entry, self.again.entry)

    @cached_property
    def written(self) -> list[Change]:
        """What the forward changed."""
        return [] if self.forward is None else _kept(self.forward.changed)

    @property
    def ambient(self) -> dict[str, tuple[Any, Any]]:
        """Modes of PyTorch that were others in the recomputation."""
        if self.forward is None or self.again is None:
            return {}
        before, after = self.forward.ambient, self.again.ambient
        return {name: (value, after.get(name)) for name, value in before.items() if after.get(name) != value}


def _kept(found: list[Change]) -> list[Change]:
    return [change for change in found if not isinstance(change.before, Identity)]


class _Watch(Regions):
    def __init__(self, target: Target, kinds: dict[str, str]) -> None:
        super().__init__()
        self._target = target
        self._ops = _Ops()
        self._log = target.tape.log if target.tape is not None else []
        self._kinds = kinds
        self.executions: dict[int, list[Execution]] = {}
        self._hooks: list[Any] = []

    @contextmanager
    def attached(self) -> Iterator[None]:
        modules = self._ops.modules

        def leave(*_: Any) -> None:
            if modules:
                modules.pop()

        for name, module in self._target.state.modules().items():
            self._kinds[name] = type(module).__name__
            self._hooks += hooked(module.register_forward_pre_hook, lambda *_, n=name: modules.append(n))
            self._hooks += hooked(module.register_forward_hook, leave, always_call=True)
        try:
            with self._ops, self._seeds("random", random), self._seeds("numpy", np.random):
                yield
        finally:
            for hook in self._hooks:
                hook.remove()

    def _seeds(self, name: str, generator: Any) -> AbstractContextManager[Any]:
        real = generator.seed

        def seed(*args: Any, **kwargs: Any) -> Any:
            if self._ops.execution is not None:
                self._ops.execution.seeded.add(name)
            return real(*args, **kwargs)

        return mock.patch.object(generator, "seed", seed)

    def begin(self, region: Region, recomputes: bool) -> Any:
        keywords = {**region.kwargs, **getattr(region.function, "keywords", {})}
        arguments = State(named_arguments(region.args, keywords))
        entry = {**self._leaves(arguments), **_closed_over(region.function)}
        execution = Execution(recomputes, region.reentrant, entry, ambient(_OWN))
        execution.takes_grad = any(isinstance(t, Tensor) and t.requires_grad for t in region.args)
        execution.nested_grad = any(t.requires_grad for t in arguments.tensors().values())
        self.executions.setdefault(region.number, []).append(execution)
        outer = self._ops.execution, self._ops.sources
        tensors = {**self._target.state.tensors(), **arguments.tensors()}
        self._ops.sources = {storage._cdata: name for name, t in tensors.items() for storage in storages(t)}
        self._ops.execution = execution
        return execution, outer, arguments, len(self._log), region

    def end(self, token: Any) -> None:
        execution, outer, arguments, read, region = token
        execution.reads = tuple(self._log[read:])
        execution.exit, execution.left = self._leaves(arguments), ambient(_OWN)
        execution.nested = _nested(region.returned)
        self._ops.execution, self._ops.sources = outer

    def _leaves(self, arguments: State) -> dict[str, Leaf]:
        with _quiet():
            passed = arguments.leaves(Digest)
            for name, held in passed.items():
                if held.kind not in (GENERATOR, TAG):
                    passed[name] = Leaf(ARGUMENT, held.value, held.owner)
            own = {**self._target.state.leaves(Digest), **self._target.process.leaves()}
            return {**own, **passed, **random_leaves(Digest)}


def _closed_over(function: Any) -> dict[str, Leaf]:
    """Which objects a function closes over: another one may be bound to the variable later."""
    while hasattr(function, "func"):
        function = function.func
    if not isinstance(function, FunctionType):
        return {}
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        content = content_of(cell)
        found[name + WHICH] = Leaf(CLOSURE, Identity(content))
        if isinstance(content, (list, dict, set)):
            found[name] = Leaf(CLOSURE, Extent("elements", len(content)))
    return found


class Identity:
    """An object: equal to itself alone."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and other.value is self.value

    def __str__(self) -> str:
        return f"a {type(self.value).__name__}"


class _Ops(TorchDispatchMode):
    """Writes down the operators of the region that runs."""

    def __init__(self) -> None:
        super().__init__()
        self.execution: Execution | None = None
        self.sources: Mapping[int, str] = {}
        self.modules: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        execution = self.execution
        if execution is None or func._schema.name.startswith("aten::detach"):
            return func(*args, **(kwargs or {}))
        taken = [t for t in tree_flatten((args, kwargs))[0] if isinstance(t, Tensor)]
        takes = tuple(hash_of(t) for t in taken)
        sources = tuple(self._source(t, execution) for t in taken)
        result = func(*args, **(kwargs or {}))
        made = [t for t in tree_flatten(result)[0] if isinstance(t, Tensor)]
        written = [s for t, s, h in zip(taken, sources, takes, strict=True) if s and hash_of(t) != h]
        execution.made.update(storage._cdata for t in made if not func.is_view for storage in storages(t))
        op = Op(
            str(func),
            self.modules[-1] if self.modules else "",
            takes,
            () if func._schema.name.startswith("aten::empty") else tuple(hash_of(t) for t in made),
            tuple((tuple(t.shape), t.dtype) for t in made),
            tuple(t.stride() for t in made if t.layout == torch.strided),
            sources,
            _settings(args, kwargs),
            tuple(written),
            torch.Tag.nondeterministic_seeded in func.tags,
            func.is_view,
        )
        execution.ops.append(op)
        return result

    def _source(self, t: Tensor, execution: Execution) -> str:
        own = [storage._cdata for storage in storages(t)]
        if execution.made.intersection(own):
            return ""
        return next((self.sources[storage] for storage in own if storage in self.sources), "")


_OWN = (_Ops, _CachingTorchDispatchMode, _CachedTorchDispatchMode)


def _settings(args: Any, kwargs: Any) -> tuple[Any, ...]:
    return tuple(v for v in tree_flatten((args, kwargs))[0] if isinstance(v, (bool, int, float, str, torch.dtype)))


def _nested(result: Any) -> str:
    """Tensors that are returned themselves, alone or in a tuple, are not nested."""
    alone = result if isinstance(result, tuple) else (result,)
    parts = {f"[{i}]" if isinstance(result, tuple) else "": part for i, part in enumerate(alone)}
    nested = State({"output" + name: part for name, part in parts.items() if not isinstance(part, Tensor)})
    return next((n for n, t in nested.tensors().items() if t.is_floating_point() or t.is_complex()), "")


@contextmanager
def _quiet() -> Iterator[None]:
    with torch.utils._python_dispatch._disable_current_modes():
        yield


class Digest:
    """A tensor at one time: equal to another with the same elements."""

    def __init__(self, t: Tensor) -> None:
        self.hash, self.shape, self.dtype = hash_of(t), tuple(t.shape), t.dtype

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Digest) and self.hash == other.hash

    def __str__(self) -> str:
        return f"a tensor {list(self.shape)}"


def hash_of(t: Tensor) -> int:
    """The same for tensors with the same elements, whatever their layout."""
    t = t.detach()
    parts = strided_parts(t)
    if parts is not None:
        return hash((str(t.layout), *(hash_of(part) for part in parts)))
    if t.device.type == "meta":
        return hash((tuple(t.shape), t.dtype))
    if type(t) is not Tensor:
        t = t.as_subclass(Tensor)
    try:
        flat = t.resolve_conj().resolve_neg().contiguous().cpu().reshape(-1)
        return hash(flat.view(torch.uint8).numpy().tobytes() if t.numel() else (tuple(t.shape), t.dtype))
    except (RuntimeError, TypeError, NotImplementedError):
        # Without memory, such as a fake tensor.
        return hash((tuple(t.shape), t.dtype))


def watch(
    target: Target, scenario: Scenario, variant: Variant, seed: int, plain: Seen, differences: list[Change]
) -> Evidence:
    """Runs a scenario again, and looks."""
    evidence = _watched(target, scenario, variant, seed, plain, differences)
    if evidence.fork is None and not evidence.reentrant and scenario.early_stop:
        # Early stop may end a recomputation before the operator that shows where it leaves the way.
        whole = _watched(target, replace(scenario, early_stop=False), variant, seed, plain, differences)
        if whole.fork is not None:
            whole.seen = evidence.seen
            return whole
    return evidence


def _watched(
    target: Target, scenario: Scenario, variant: Variant, seed: int, plain: Seen, differences: list[Change]
) -> Evidence:
    kinds: dict[str, str] = {}
    watcher = _Watch(target, kinds)
    seen = run(target, scenario, variant, seed, watcher)
    evidence = Evidence(target, scenario, variant, plain, seen, differences, kinds=kinds)
    pairs = [(runs[0], runs[1:]) for runs in watcher.executions.values() if runs]
    for first, later in pairs:
        for again in later:
            fork = fork_of(first.ops, again.ops, first.reentrant or not scenario.early_stop)
            if evidence.forward is None or (fork is not None and evidence.fork is None):
                evidence.forward, evidence.again, evidence.fork = first, again, fork
    if evidence.forward is None and pairs:
        evidence.forward = pairs[0][0]
    return evidence
