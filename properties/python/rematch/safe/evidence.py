"""A watched run: what each region computed, what it found when it began, and what it left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import FunctionType
from typing import Any

import torch
from torch import Tensor
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack
from torch.utils._pytree import tree_flatten
from torch.utils.checkpoint import _CachedTorchDispatchMode, _CachingTorchDispatchMode

from rematch.safe.compare import Change, changes
from rematch.safe.regions import Region, Regions
from rematch.safe.restore import content_of
from rematch.safe.run import Seen, Target, named_arguments, random_leaves, run
from rematch.safe.scenarios import Scenario, Variant
from rematch.safe.state import ARGUMENT, CLOSURE, GENERATOR, Extent, Leaf, State

WHICH = " (which object)"
"""Ends the name of a variable of which the object is compared."""


@dataclass(frozen=True)
class Op:
    """An operator that ran: in which submodule, of what, and what it made."""

    name: str
    module: str
    takes: tuple[int, ...]
    makes: tuple[int, ...]
    metadata: tuple[Any, ...]
    layout: tuple[Any, ...]
    sources: tuple[str, ...]
    """Names of the states and inputs that it read, "" for what an operator made; beside `takes`."""
    writes: tuple[str, ...] = ()
    draws: bool = False
    view: bool = False

    def __str__(self) -> str:
        return f"{self.name} in {self.module}" if self.module else self.name


@dataclass
class Execution:
    """A region that ran: a forward, or a recomputation."""

    recomputes: bool
    reentrant: bool
    entry: dict[str, Leaf]
    ambient: dict[str, Any]
    exit: dict[str, Leaf] = field(default_factory=dict)
    takes_grad: bool = False
    """An argument is a tensor that requires grad."""
    nested_grad: bool = False
    """A tensor that requires grad is an argument, or within one."""
    ops: list[Op] = field(default_factory=list)
    made: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class Fork:
    """Where a recomputation leaves the way of its forward: `first` ran in the forward, `again` in the
    recomputation; None where one of them has ended."""

    first: Op | None
    again: Op | None

    @property
    def same_operator(self) -> bool:
        return self.first is not None and self.again is not None and self.first.name == self.again.name

    @property
    def same_inputs(self) -> bool:
        """The operator itself made something else of the same."""
        return self.same_operator and self.first.takes == self.again.takes  # type: ignore[union-attr]

    @property
    def of_others(self) -> bool:
        """The same operator made the same kind of result of other operands."""
        if self.first is None or self.again is None or not self.same_operator:
            return False
        return self.first.takes != self.again.takes and self.first.metadata == self.again.metadata

    @property
    def source(self) -> str:
        """The name of the state or input that had other values; "" where none is seen."""
        if not self.same_operator or self.first is None or self.again is None:
            return ""
        for source, a, b in zip(self.again.sources, self.first.takes, self.again.takes, strict=False):
            if a != b and source:
                return source
        return ""

    def __str__(self) -> str:
        if self.first is None:
            return f"{self.again} runs in the recomputation only"
        if self.again is None:
            return f"{self.first} runs in the forward only"
        if self.same_operator:
            if self.first.metadata != self.again.metadata:
                return (
                    f"{self.again} makes {_metadata(self.again)} in the recomputation, {_metadata(self.first)} before"
                )
            of = "" if self.same_inputs else (f" of {self.source}" if self.source else " of other operands")
            return f"{self.again} computes something else in the recomputation{of}"
        return f"the recomputation runs {self.again}, the forward ran {self.first}"


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

    @property
    def entered(self) -> list[Change]:
        """What a recomputation found changed, compared with what its forward found."""
        if self.forward is None or self.again is None:
            return []
        return changes(self.forward.entry, self.again.entry)

    @property
    def written(self) -> list[Change]:
        """What the forward changed."""
        return [] if self.forward is None else _kept(changes(self.forward.entry, self.forward.exit))

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
            self._hooks.append(module.register_forward_pre_hook(lambda *_, n=name: modules.append(n)))
            self._hooks.append(module.register_forward_hook(leave, always_call=True))
        try:
            with self._ops:
                yield
        finally:
            for hook in self._hooks:
                hook.remove()

    def begin(self, region: Region, recomputes: bool) -> Any:
        keywords = {**region.kwargs, **getattr(region.function, "keywords", {})}
        arguments = State(named_arguments(region.args, keywords))
        entry = {**self._leaves(arguments), **_closed_over(region.function)}
        execution = Execution(recomputes, region.reentrant, entry, _ambient())
        execution.takes_grad = any(isinstance(t, Tensor) and t.requires_grad for t in region.args)
        execution.nested_grad = any(t.requires_grad for t in arguments.tensors().values())
        self.executions.setdefault(region.number, []).append(execution)
        outer = self._ops.execution, self._ops.sources
        tensors = {**self._target.state.tensors(), **arguments.tensors()}
        self._ops.sources = {t.untyped_storage()._cdata: name for name, t in tensors.items()}
        self._ops.execution = execution
        return execution, outer, arguments

    def end(self, token: Any) -> None:
        execution, outer, arguments = token
        execution.exit = self._leaves(arguments)
        self._ops.execution, self._ops.sources = outer

    def _leaves(self, arguments: State) -> dict[str, Leaf]:
        with _quiet():
            passed = arguments.leaves(Digest)
            for name, held in passed.items():
                if held.kind != GENERATOR:
                    passed[name] = Leaf(ARGUMENT, held.value, held.owner)
            return {**self._target.state.all_leaves(Digest), **passed, **random_leaves(Digest)}


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
        execution.made.update(t.untyped_storage()._cdata for t in made if not func.is_view)
        op = Op(
            str(func),
            self.modules[-1] if self.modules else "",
            takes,
            () if func._schema.name.startswith("aten::empty") else tuple(hash_of(t) for t in made),
            tuple((tuple(t.shape), t.dtype) for t in made),
            tuple(t.stride() for t in made if t.layout == torch.strided),
            sources,
            tuple(written),
            torch.Tag.nondeterministic_seeded in func.tags,
            func.is_view,
        )
        execution.ops.append(op)
        return result

    def _source(self, t: Tensor, execution: Execution) -> str:
        storage = t.untyped_storage()._cdata
        return "" if storage in execution.made else self.sources.get(storage, "")


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
    if t.is_sparse or t.layout != torch.strided or t.device.type == "meta" or t.is_quantized:
        return hash(str(t))
    if type(t) is not Tensor:
        t = t.as_subclass(Tensor)
    t = t.resolve_conj().resolve_neg().contiguous().cpu()
    if t.numel() == 0:
        return hash((tuple(t.shape), t.dtype))
    return hash(t.reshape(-1).view(torch.uint8).numpy().tobytes())


def _ambient() -> dict[str, Any]:
    return {
        "grad mode": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "the dtype of autocast": torch.get_autocast_dtype("cpu"),
        "the cache of autocast": torch.is_autocast_cache_enabled(),
        "autocast on CUDA": torch.is_autocast_enabled("cuda"),
        "the default dtype": torch.get_default_dtype(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "the precision of products": torch.get_float32_matmul_precision(),
        "kernels of attention": (
            torch.backends.cuda.flash_sdp_enabled(),
            torch.backends.cuda.mem_efficient_sdp_enabled(),
            torch.backends.cuda.math_sdp_enabled(),
        ),
        "MKL-DNN": torch.backends.mkldnn.enabled,
        "function modes": tuple(type(mode).__name__ for mode in _get_current_function_mode_stack()),
        "dispatch modes": tuple(
            type(mode).__name__
            for mode in _get_current_dispatch_mode_stack()
            if not isinstance(mode, (_Ops, _CachingTorchDispatchMode, _CachedTorchDispatchMode))
        ),
        "functions of subclasses": torch._C._is_torch_function_enabled(),
        "threads": torch.get_num_threads(),
    }


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
            fork = _fork(first, again)
            if evidence.forward is None or (fork is not None and evidence.fork is None):
                evidence.forward, evidence.again, evidence.fork = first, again, fork
    if evidence.forward is None and pairs:
        evidence.forward = pairs[0][0]
    return evidence


def _fork(first: Execution, again: Execution) -> Fork | None:
    before, after = _computing(first), _computing(again)
    for a, b in zip(before, after, strict=False):
        if a.name != b.name or a.metadata != b.metadata:
            return Fork(a, b)
        if a.makes != b.makes and not b.writes:
            return Fork(a, b)
    if len(after) > len(before):
        return Fork(None, after[len(before)])
    return None


def _computing(execution: Execution) -> list[Op]:
    return [op for op in execution.ops if not op.view and not op.name.startswith(("aten.empty", "aten.lift_fresh"))]


def _metadata(op: Op) -> str:
    return ", ".join(f"{str(dtype).removeprefix('torch.')} {list(shape)}" for shape, dtype in op.metadata)
