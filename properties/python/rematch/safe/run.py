"""One watched run of a module, plain or checkpointed."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_unflatten
from torch.utils.checkpoint import checkpoint

Target = nn.Module | Callable[..., Any]


@dataclass(frozen=True)
class Scenario:
    """How a module is used. A plain run and checkpointed ones are compared in each."""

    name: str
    train: bool = True
    inputs_require_grad: bool = True
    preserve_rng_state: bool = True
    autocast: bool = False
    backwards: int = 1
    microbatches: int = 1


@dataclass(frozen=True)
class Op:
    """An operator that ran, in which submodule, and what it made."""

    name: str
    module: str
    hashes: tuple[int, ...]
    writes: tuple[str, ...] = ()
    """The buffers that it wrote to."""

    def __str__(self) -> str:
        return f"{self.name} in {self.module}" if self.module else self.name


@dataclass
class Seen:
    """Observations of a run."""

    values: dict[str, Tensor | None] = field(default_factory=dict)
    """Outputs, gradients and buffers by name; None is an absent gradient."""
    states: dict[str, Any] = field(default_factory=dict)
    """Random states after the run, by the name of their generator."""
    executions: list[list[Op]] = field(default_factory=list)
    """The operators of each execution of the module: forwards, and recomputations as they come."""
    forwards: list[int] = field(default_factory=list)
    """Which of the executions are forwards; those between are recomputations."""
    draws: bool = False
    """PyTorch's generator was used in a forward."""
    error: str = ""


class _Ops(TorchDispatchMode):
    """Writes down the operators while the module runs."""

    def __init__(self, buffers: dict[str, Tensor]) -> None:
        super().__init__()
        self._buffers = {b.untyped_storage()._cdata: (n, b) for n, b in buffers.items()}
        self.ops: list[Op] | None = None
        self.modules: list[str] = []
        self.draws = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.ops is None:
            return func(*args, **(kwargs or {}))
        touched = {
            name: buffer.clone()
            for t in tree_flatten((args, kwargs))[0]
            if isinstance(t, Tensor)
            for name, buffer in [self._buffers.get(t.untyped_storage()._cdata, ("", t))]
            if name
        }
        result = func(*args, **(kwargs or {}))
        written = [n for n, before in touched.items() if not _same(before, self._buffer(n))]
        if torch.Tag.nondeterministic_seeded in func.tags:
            self.draws = True
        if not func.is_view and not func._schema.name.startswith("aten::empty"):
            made = [t for t in tree_flatten(result)[0] if isinstance(t, Tensor)]
            module = self.modules[-1] if self.modules else ""
            hashes = tuple(_hash(t) for t in made)
            self.ops.append(Op(str(func), module, hashes, tuple(written)))
        return result

    def _buffer(self, name: str) -> Tensor:
        return next(b for n, b in self._buffers.values() if n == name)


def _same(a: Tensor, b: Tensor) -> bool:
    return bool(torch.equal(a.nan_to_num(), b.nan_to_num()))


def _hash(t: Tensor) -> int:
    t = t.detach()
    return hash(t.view(torch.int16).numpy().tobytes() if t.dtype == torch.bfloat16 else t.numpy().tobytes())


def _copied(target: Target) -> Target:
    if not isinstance(target, nn.Module):
        return target
    return copy.deepcopy(target)


def _track(module: nn.Module, ops: _Ops) -> None:
    for name, child in module.named_modules():
        if name:
            child.register_forward_pre_hook(lambda *_, name=name: ops.modules.append(name))
            child.register_forward_hook(lambda *_: ops.modules.pop() and None, always_call=True)


def seed_all(seed: int) -> None:
    """Sets the generators of PyTorch, NumPy and Python."""
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def _random_states() -> dict[str, Any]:
    return {
        "torch": torch.get_rng_state(),
        "numpy": np.random.get_state()[1:3],  # type: ignore[index]
        "random": random.getstate(),
    }


def _inputs(example: Sequence[Any], scenario: Scenario, microbatch: int) -> list[Any]:
    leaves, tree = tree_flatten(list(example))
    fresh = []
    for leaf in leaves:
        if isinstance(leaf, Tensor):
            leaf = leaf.detach().clone()
            if leaf.is_floating_point():
                leaf = leaf * (1 + microbatch / 2)
                leaf = leaf.detach().requires_grad_(scenario.inputs_require_grad)
        fresh.append(leaf)
    return tree_unflatten(fresh, tree)


def _loss(outputs: list[Tensor]) -> Tensor:
    """A sum in which every element has a weight of its own, the same in every run."""
    weights = torch.Generator().manual_seed(11)
    total = torch.zeros(())
    for output in outputs:
        if output.requires_grad:
            w = torch.randn(output.shape, generator=weights).to(output.dtype)
            total = total + (output * w).sum().to(total.dtype)
    return total


def run(target: Target, example: Sequence[Any], scenario: Scenario, reentrant: bool | None, seed: int) -> Seen:
    """Runs a copy of a module, or a function, under a scenario; `reentrant` None: plain.

    Whatever the module or PyTorch raises ends up in Seen.error.
    """
    target = _copied(target)
    module = target if isinstance(target, nn.Module) else nn.Module()
    module.train(scenario.train)
    seen = Seen()
    ops = _Ops(dict(module.named_buffers()))
    _track(module, ops)
    seed_all(seed)

    def entered(*inputs: Any) -> Any:
        outer, ops.ops = ops.ops, []
        ops.modules.clear()
        seen.executions.append(ops.ops)
        try:
            return target(*inputs)
        finally:
            ops.ops = outer

    try:
        with ops:
            for microbatch in range(scenario.microbatches):
                _step(entered, example, scenario, reentrant, microbatch, ops, seen)
    except Exception as error:
        seen.error = f"{type(error).__name__}: {error}"
    for name, parameter in module.named_parameters():
        seen.values[f"gradient of {name}"] = parameter.grad
    for name, buffer in module.named_buffers():
        seen.values[f"buffer {name}"] = buffer
    seen.states = _random_states()
    return seen


def _step(
    function: Callable[..., Any],
    example: Sequence[Any],
    scenario: Scenario,
    reentrant: bool | None,
    microbatch: int,
    ops: _Ops,
    seen: Seen,
) -> None:
    inputs = _inputs(example, scenario, microbatch)
    seen.forwards.append(len(seen.executions))
    cast = torch.autocast("cpu", torch.bfloat16) if scenario.autocast else nullcontext()
    with cast:
        if reentrant is None:
            returned = function(*inputs)
        else:
            options = {} if scenario.preserve_rng_state else {"preserve_rng_state": False}
            returned = checkpoint(function, *inputs, use_reentrant=reentrant, **options)
    seen.draws |= ops.draws
    outputs = [t for t in tree_flatten(returned)[0] if isinstance(t, Tensor)]
    where = f", microbatch {microbatch}" if scenario.microbatches > 1 else ""
    for k, output in enumerate(outputs):
        seen.values[f"output {k}{where}"] = output.detach().clone()
    loss = _loss(outputs)
    if loss.requires_grad:
        for i in range(scenario.backwards):
            loss.backward(retain_graph=i + 1 < scenario.backwards)
    for k, leaf in enumerate(tree_flatten(inputs)[0]):
        if isinstance(leaf, Tensor) and leaf.is_floating_point():
            seen.values[f"gradient of input {k}{where}"] = leaf.grad
