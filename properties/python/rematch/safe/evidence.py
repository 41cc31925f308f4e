"""A watched run: for each region what it computed, the state that it found, and the state that it left."""

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
from torch.utils._pytree import tree_flatten
from torch.utils.checkpoint import _CachedTorchDispatchMode, _CachingTorchDispatchMode

from rematch.journal.fingerprint import Fingerprints, flattened
from rematch.journal.journal import BACKWARD, FORWARD, Journal
from rematch.journal.operators import Execution, Operator, Operators, Reader
from rematch.journal.regions import Region, why
from rematch.journal.storages import storages
from rematch.safe.ambient import ambient
from rematch.safe.compare import Change, changes
from rematch.safe.fork import Fork, Op, fork_of
from rematch.safe.generators import random_leaves
from rematch.safe.restore import content_of, strided_parts
from rematch.safe.scenarios import Scenario, Variant
from rematch.safe.state import ARGUMENT, CLASS, CLOSURE, ENVIRONMENT, GENERATOR, GLOBAL, TAG, Leaf, State
from rematch.safe.target import Target, named_arguments
from rematch.safe.target_run import GRADIENT, Seen, run
from rematch.safe.values import Identity

CALLER = "caller"
WHICH = " (which object)"
"""Ends the name of a variable whose object is compared by identity."""


@dataclass
class Traced:
    """One execution of a region: a forward, or a recomputation."""

    recomputes: bool
    reentrant: bool
    entry: dict[str, Leaf]
    ambient: dict[str, Any]
    exit: dict[str, Leaf] = field(default_factory=dict)
    began: dict[str, Leaf] = field(default_factory=dict)
    """Like `exit`, but taken when the backward began; only forwards have it."""
    left: dict[str, Any] = field(default_factory=dict)
    """Like `ambient`, at the end of the execution."""
    seeded: set[str] = field(default_factory=set)
    """The generators that it seeded: "numpy", "random"."""
    reads: tuple[str, ...] = ()
    """Its reads of the clock and of the system's randomness, if a tape replaces them."""
    nested: str = ""
    """The name of the first floating-point tensor that it returned inside a container."""
    takes_grad: bool = False
    """Whether a tensor that requires grad is an argument itself."""
    nested_grad: bool = False
    """Whether a tensor that requires grad is nested inside an argument."""
    ops: list[Op] = field(default_factory=list)
    made: set[int] = field(default_factory=set)

    @cached_property
    def changed(self) -> list[Change]:
        """The state that it changed."""
        return changes(self.entry, self.exit)


@dataclass
class Evidence:
    """All that is known about the differences of a run; the rules that name causes read it."""

    target: Target
    scenario: Scenario
    variant: Variant
    plain: Seen
    seen: Seen
    differences: list[Change]
    forward: Traced | None = None
    again: Traced | None = None
    fork: Fork | None = None
    kinds: dict[str, str] = field(default_factory=dict)
    """The class of each submodule by name."""
    right_otherwise: bool = False
    """Whether outputs and gradients are right without the selective policy or the offloading of this scenario."""
    executions: list[Traced] = field(default_factory=list)
    """All executions of regions in the run."""
    overtaken: bool = False
    """Whether the last forward is recomputed correctly and an earlier one is not."""
    differ_alone: frozenset[str] = frozenset()
    """Names that also differ when a single forward comes before its backward."""
    stopped: frozenset[str] = frozenset()
    """States that a recomputation puts back only if it does not stop early."""

    @property
    def error(self) -> str:
        return self.seen.error

    @property
    def reentrant(self) -> bool:
        return self.forward.reentrant if self.forward is not None else self.variant.reentrant

    @cached_property
    def _found(self) -> list[Change]:
        if self.forward is None or self.again is None:
            return []
        return changes(self.forward.entry, self.again.entry)

    @cached_property
    def entered(self) -> list[Change]:
        """The state that the recomputation found changed since its forward began, without gradients."""
        return [c for c in self._found if c.kind != GRADIENT]

    @cached_property
    def gradients(self) -> list[Change]:
        """The gradients that the recomputation found changed, if code of the target names them."""
        return [c for c in self._found if c.kind == GRADIENT]

    @cached_property
    def written(self) -> list[Change]:
        """The state that the forward changed."""
        return [] if self.forward is None else _kept(self.forward.changed)

    @cached_property
    def rewritten(self) -> list[Change]:
        """The state that the recomputation changed."""
        return [] if self.again is None else _kept(self.again.changed)

    def changed_again(self) -> set[str]:
        """Returns the names of the state that any recomputation changed."""
        return {c.name for e in self.executions if e.recomputes for c in e.changed}

    def by(self, name: str) -> str:
        """Returns who changed a state: FORWARD, a region; CALLER, its caller; BACKWARD, its hooks and optimizers."""
        first = self.forward
        if first is None or not first.began or name not in {**first.exit, **first.began}:
            return FORWARD
        if any(changes(_only(name, e.entry), _only(name, e.exit)) for e in self.executions):
            return FORWARD
        return CALLER if changes(_only(name, first.exit), _only(name, first.began)) else BACKWARD

    @property
    def ambient(self) -> dict[str, tuple[Any, Any]]:
        """PyTorch's modes that differed in the recomputation, each with both values."""
        if self.forward is None or self.again is None:
            return {}
        before, after = self.forward.ambient, self.again.ambient
        return {name: (value, after.get(name)) for name, value in before.items() if after.get(name) != value}


def _only(name: str, leaves: Mapping[str, Leaf]) -> dict[str, Leaf]:
    return {name: leaves[name]} if name in leaves else {}


def _kept(found: list[Change]) -> list[Change]:
    return [change for change in found if type(change.before) is not Identity]


class _Watch(Reader):
    """Notes what regions compute, the state that they find, and the state that they leave."""

    def __init__(self, target: Target, kinds: dict[str, str]) -> None:
        self._target = target
        self._log = target.tape.log if target.tape is not None else []
        self._execution: Traced | None = None
        self._sources: Mapping[int, str] = {}
        self.executions: dict[int, list[Traced]] = {}
        self._waiting: list[tuple[Traced, State, Region]] = []
        self._asks = any("grad" in f.__code__.co_names for f in target.state.functions())
        modules = target.state.modules()
        kinds.update({name: type(module).__name__ for name, module in modules.items()})
        self.journal = _Journal(modules, self, unseen=self._not_seen)

    def _not_seen(self, what: str, error: Exception) -> None:
        self.journal.unseen[what] = why(error)

    def seeds(self, name: str) -> None:
        """Notes that a generator of NumPy or Python gets a seed."""
        if self._execution is not None:
            self._execution.seeded.add(name)

    def begins(self, execution: Execution) -> None:
        region = execution.region
        keywords = {**region.kwargs, **getattr(region.function, "keywords", {})}
        arguments = State(named_arguments(region.args, keywords))
        found = Traced(execution.recomputes, region.reentrant, self._leaves(arguments, region), ambient(_OWN))
        alone = {id(t) for t in region.args if isinstance(t, Tensor)}
        given = [t for t in arguments.tensors().values() if t.requires_grad]
        found.takes_grad = any(id(t) in alone for t in given)
        found.nested_grad = any(id(t) not in alone for t in given)
        self.executions.setdefault(region.number, []).append(found)
        execution.notes = found, (self._execution, self._sources), arguments, len(self._log)
        with self._looking(region, arguments) as state:
            tensors = {**state.tensors(), **arguments.tensors()}
        tensors |= {f"{name}.grad": t for name, t in self._grads().items() if t is not None}
        self._sources = {storage._cdata: name for name, t in tensors.items() for storage in storages(t)}
        self._execution = found

    def ends(self, execution: Execution) -> None:
        found, outer, arguments, read = execution.notes
        self._execution, self._sources = outer
        found.reads = tuple(self._log[read:])
        found.exit, found.left = self._leaves(arguments, execution.region), ambient(_OWN)
        if not found.recomputes:
            self._waiting.append((found, arguments, execution.region))
        found.nested = _nested(execution.region.returned)

    def backward(self) -> None:
        for execution, arguments, region in self._waiting:
            execution.began = self._leaves(arguments, region)
        self._waiting.clear()

    def _grads(self) -> dict[str, Tensor | None]:
        return {name: t.grad for name, t in self._target.state.trainable().items()} if self._asks else {}

    @contextmanager
    def _looking(self, region: Region, arguments: State) -> Iterator[State]:
        """Within, gives the target's state, and what only the region's function reaches, such as its closure."""
        state, function, bound = self._target.state, region.function, []
        while hasattr(function, "func"):
            # Its keywords are arguments.
            bound += getattr(function, "args", ())
            function = function.func
        state.beside = {"": function, **{f"bound {i}": part for i, part in enumerate(bound)}}
        try:
            yield state
        finally:
            state.beside = {}

    def _leaves(self, arguments: State, region: Region) -> dict[str, Leaf]:
        with torch.utils._python_dispatch._disable_current_modes(), self._looking(region, arguments) as state:
            passed = arguments.leaves(Digest)
            for name, held in passed.items():
                if held.kind not in (GENERATOR, TAG):
                    passed[name] = Leaf(ARGUMENT, held.value, held.owner)
            closed = _closed_over(state.functions())
            own = {**state.leaves(Digest), **self._target.process.leaves()}
            found = {**own, **closed, **passed, **random_leaves(Digest)}
            for name, grad in self._grads().items():
                found[f"{name}.grad"] = Leaf(GRADIENT, None if grad is None else Digest(grad))
        return found

    def before(self, op: Operator) -> None:
        if self._execution is None or op.func._schema.name.startswith("aten::detach"):
            return
        taken = [t for t in tree_flatten((op.args, op.kwargs))[0] if isinstance(t, Tensor)]
        op.notes = taken, tuple(hash_of(t) for t in taken), tuple(self._source(t) for t in taken)

    def after(self, op: Operator) -> None:
        execution = self._execution
        if op.notes is None or execution is None:
            return
        func, (taken, takes, sources) = op.func, op.notes
        made = [t for t in tree_flatten(op.result)[0] if isinstance(t, Tensor)]
        written = [s for t, s, h in zip(taken, sources, takes, strict=True) if s and hash_of(t) != h]
        execution.made.update(storage._cdata for t in made if not func.is_view for storage in storages(t))
        op_that_ran = Op(
            op.name,
            self.journal.module,
            takes,
            () if func._schema.name.startswith("aten::empty") else tuple(hash_of(t) for t in made),
            tuple((tuple(t.shape), t.dtype) for t in made),
            tuple(t.stride() for t in made if t.layout == torch.strided),
            sources,
            _settings(op.args, op.kwargs),
            tuple(written),
            op.draws,
            func.is_view,
        )
        execution.ops.append(op_that_ran)

    def _source(self, t: Tensor) -> str:
        own = [storage._cdata for storage in storages(t)]
        if any(storage in self._execution.made for storage in own):
            return ""
        return next((self._sources[storage] for storage in own if storage in self._sources), "")


class _Journal(Journal):
    """A journal that also tells its readers when a generator of NumPy or Python gets a seed."""

    @contextmanager
    def attached(self) -> Iterator[None]:
        with self._seeds("random", random), self._seeds("numpy", np.random), super().attached():
            yield

    def _seeds(self, name: str, generator: Any) -> AbstractContextManager[Any]:
        real = generator.seed

        def seed(*args: Any, **kwargs: Any) -> Any:
            for reader in self._readers:
                reader.seeds(name)
            return real(*args, **kwargs)

        return mock.patch.object(generator, "seed", seed)


def _closed_over(functions: list[FunctionType]) -> dict[str, Leaf]:
    """Returns the identities of objects that functions close over: a variable may be bound to another one later."""
    found: dict[str, Leaf] = {}
    for function in functions:
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            names = (name + WHICH, *(f"{name} ({n}){WHICH}" for n in range(2, len(functions) + 2)))
            found[next(n for n in names if n not in found)] = Leaf(CLOSURE, Identity(content_of(cell)))
    return found


_OWN = (Operators, _CachingTorchDispatchMode, _CachedTorchDispatchMode)


def _settings(args: Any, kwargs: Any) -> tuple[Any, ...]:
    return tuple(v for v in tree_flatten((args, kwargs))[0] if isinstance(v, (bool, int, float, str, torch.dtype)))


def _nested(result: Any) -> str:
    """Returns the first tensor nested in `result`, by name. One returned alone or in a tuple is not nested."""
    alone = result if isinstance(result, tuple) else (result,)
    parts = {f"[{i}]" if isinstance(result, tuple) else "": part for i, part in enumerate(alone)}
    nested = State({"output" + name: part for name, part in parts.items() if not isinstance(part, Tensor)})
    return next((n for n, t in nested.tensors().items() if t.is_floating_point() or t.is_complex()), "")


class Digest:
    """A fingerprint of a tensor at one time: equal to another one if all elements are equal."""

    def __init__(self, t: Tensor) -> None:
        self.hash, self.shape, self.dtype = hash_of(t), tuple(t.shape), t.dtype

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Digest) and self.hash == other.hash

    def __str__(self) -> str:
        return f"a tensor {list(self.shape)}"


_FINGERPRINTS = Fingerprints()


def hash_of(t: Tensor) -> int:
    """Returns a hash of a tensor's elements, which does not depend on its strides."""
    t = t.detach()
    parts = strided_parts(t)
    if parts is not None:
        return hash((str(t.layout), *(hash_of(part) for part in parts)))
    if t.device.type == "meta":
        return hash((tuple(t.shape), t.dtype))
    try:
        flat = flattened(t.as_subclass(Tensor))
        return hash((flat.numel() * flat.element_size(), int(_FINGERPRINTS.of(flat))))
    except (RuntimeError, TypeError, NotImplementedError):
        # A tensor without memory, such as a fake one.
        return hash((tuple(t.shape), t.dtype))


def watch(
    target: Target, scenario: Scenario, variant: Variant, seed: int, plain: Seen, differences: list[Change]
) -> Evidence:
    """Runs `target` again, watched, and returns the evidence for its `differences` from the run `plain`."""
    # A policy answers for operators before they are seen.
    bare = replace(scenario, policy="")
    evidence = _watched(target, bare, variant, seed, plain, differences)
    if not evidence.reentrant and scenario.early_stop:
        changed = evidence.changed_again()
        if evidence.fork is None or changed:
            # Early stop may end a recomputation before the operator that shows where it diverges.
            whole = _watched(target, replace(bare, early_stop=False), variant, seed, plain, differences)
            if evidence.error or not whole.error:
                process = [c.name for c in differences if c.kind in (GLOBAL, ENVIRONMENT, CLASS)]
                same = {n for n in process if not changes(_only(n, plain.values), _only(n, whole.seen.values))}
                evidence.stopped = frozenset(changed - whole.changed_again() | same)
            if evidence.fork is None and whole.fork is not None:
                whole.seen, whole.stopped = evidence.seen, evidence.stopped
                evidence = whole
    evidence.scenario = scenario
    return evidence


def _watched(
    target: Target, scenario: Scenario, variant: Variant, seed: int, plain: Seen, differences: list[Change]
) -> Evidence:
    kinds: dict[str, str] = {}
    watcher = _Watch(target, kinds)
    seen = run(target, scenario, variant, seed, watcher.journal)
    evidence = Evidence(target, scenario, variant, plain, seen, differences, kinds=kinds)
    evidence.executions = [run for runs in watcher.executions.values() for run in runs]
    pairs = [(runs[0], runs[1:]) for runs in watcher.executions.values() if runs]
    for first, later in pairs:
        fork = None
        for again in later:
            fork = fork_of(first.ops, again.ops, first.reentrant or not scenario.early_stop)
            if evidence.forward is None or (fork is not None and evidence.fork is None):
                evidence.forward, evidence.again, evidence.fork = first, again, fork
        evidence.overtaken = scenario.forwards > 1 and fork is None and evidence.fork is not None
    if evidence.forward is None and pairs:
        evidence.forward = pairs[0][0]
    return evidence
