"""Runs a target once, plain or checkpointed, and collects all that the run leaves behind."""

import random
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, fields, is_dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

from rematch.journal import regions
from rematch.safe import wide
from rematch.safe.callers import set_anew, set_by_callers
from rematch.safe.generators import random_leaves, seed_all
from rematch.safe.process import DoesNotEnd, stopped_after, why_not_stopped
from rematch.safe.scenarios import Scenario, Variant
from rematch.safe.state import ARGUMENT, GENERATOR, RETURNED, TAG, Leaf, State
from rematch.safe.target import Target, copied, has_history, named_arguments, total_of
from rematch.safe.values import Extent, parts_of

OUTPUT, GRADIENT = "output", "gradient"
LEARNING_RATE = 0.05
PATIENCE, TIMES = 20.0, 50
"""A run is stopped after PATIENCE seconds, or TIMES as long as the slowest plain run before, whichever is more."""
AFTERWARDS = "after the backward, "
"""Begins the name of a returned value as it is after the backward."""


@dataclass
class Seen:
    """What a run left behind."""

    values: dict[str, Leaf] = field(default_factory=dict)
    """Outputs, gradients, arguments and states by name. A tensor is its copy; an absent gradient is None."""
    flags: dict[str, bool] = field(default_factory=dict)
    """Whether each tensor among outputs and attributes requires grad right after the forward."""
    error: str = ""
    failure: BaseException | None = None
    endless: bool = False
    """Whether it was stopped because it does not end."""
    regions: int = 0
    """The number of calls of checkpoint()."""
    reentrant: bool = False
    """Whether one of them had use_reentrant=True."""


def run(
    target: Target,
    scenario: Scenario,
    variant: Variant | None,
    seed: int,
    regions_of: regions.Regions | None = None,
    in_float64: bool = False,
) -> Seen:
    """Runs `target` under `scenario`, and returns what the run leaves behind.

    `variant` says how the target is checkpointed; None: plain. `regions_of` is told of each region. `in_float64` makes
    all floating-point tensors float64. An error that the target or PyTorch raises ends up in Seen.error, as does a
    checkpointed run that does not end. The process is left as it was found.
    """
    target.begin(seed)
    trained = target.state.trainable()
    seen = Seen()
    calls = regions.Regions()
    told = regions.plain() if variant is None else regions.told(regions_of or regions.Regions())
    # It is not known how long the first plain runs, or a compiler, may take.
    known = variant is not None or (target.slowest > 0 and not scenario.compiled)
    patience = patience_with(target) if known else nullcontext()
    if why := why_not_stopped():
        target.unseen["a run that does not end"] = why
    begin = time.monotonic()
    try:
        if target.switch is not None:
            target.switch(target.function, variant is not None)
        if in_float64:
            wide.widen(target.state.tensors().values())
        modules = target.state.modules()
        scenario.prepare(modules, target.state.trainable())
        trained = target.state.trainable()
        for parameter in trained.values():
            parameter.grad = None
        seed_all(seed)
        with patience, told as calls, calls.attached(), ExitStack() as stack:
            if in_float64:
                stack.enter_context(wide.wide())
            if target.tape is not None:
                stack.enter_context(target.tape.playing(target.state.functions()))
            if variant is not None and not scenario.early_stop:
                stack.enter_context(set_checkpoint_early_stop(False))
            step = _Step(target, scenario, variant, seen, calls, in_float64)
            for number in range(scenario.steps * scenario.microbatches):
                step.once(number)
                if scenario.steps > 1:
                    _update(trained.values())
    except (Exception, DoesNotEnd) as error:
        seen.error = f"{type(error).__name__}: {error}"
        seen.failure = error
    finally:
        try:
            seen.values.update(target.process.modes() | target.process.leaves())
        finally:
            target.process.restore()
    if variant is None and not seen.error:
        target.slowest = 0.0 if target.slowest < 0 else max(target.slowest, time.monotonic() - begin)
    target.unseen.update(calls.unseen)
    seen.endless = isinstance(seen.failure, DoesNotEnd) or regions.AGAIN in seen.error
    seen.regions, seen.reentrant = calls.count, calls.reentrant
    for name, parameter in trained.items():
        grad = parameter.grad
        name = f"gradient of {name}"
        seen.values[name] = Leaf(GRADIENT, None if grad is None else target.copies(grad, name))
    seen.values.update(target.state.leaves(target.copies))
    seen.values.update(random_leaves(copied))
    return seen


def patience_with(target: Target) -> AbstractContextManager[None]:
    """Within, stops a run that does not end."""
    return stopped_after(max(PATIENCE, TIMES * target.slowest))


class _Step:
    """Runs the forwards and backwards of a run."""

    def __init__(
        self,
        target: Target,
        scenario: Scenario,
        variant: Variant | None,
        seen: Seen,
        calls: regions.Regions,
        in_float64: bool,
    ) -> None:
        self._target, self._scenario, self._variant, self._seen = target, scenario, variant, seen
        self._calls, self._in_float64 = calls, in_float64

    def once(self, number: int) -> None:
        """Runs the forwards of one step or microbatch, and their backward."""
        scenario, seen = self._scenario, self._seen
        counts = {"step": scenario.steps, "microbatch": scenario.microbatches, "forward": scenario.forwards}
        word = next((word for word, count in counts.items() if count > 1), "")
        losses: list[Tensor | None] = []
        self._returned: list[tuple[str, Any]] = []
        given = []
        for forward in range(scenario.forwards):
            where = f", {word} {number + forward}" if word else ""
            args, kwargs, leaves = self._inputs(number + forward)
            given.append((where, leaves, State(named_arguments(args, kwargs))))
            losses += self._forward(args, kwargs, number + forward, where)
        for generator in scenario.others_draw:
            (np.random if generator == "numpy" else random).random()
        sets = set_anew(set_by_callers(self._target.state)[scenario.sets]) if scenario.sets else nullcontext()
        with sets:
            self._backward(sum((part for part in losses if part is not None and part.requires_grad), torch.zeros(())))
        for where, returned in self._returned:
            tensors = State({"output": returned}).tensors()
            found = {n: copied(t) for n, t in tensors.items()} | _answers(returned)
            seen.values.update({f"{AFTERWARDS}{n}{where}": Leaf(RETURNED, value) for n, value in found.items()})
        for where, leaves, passed in given:
            for name, leaf in leaves.items():
                grad = None if leaf.grad is None else copied(leaf.grad)
                seen.values[f"gradient of {name}{where}"] = Leaf(GRADIENT, grad)
            for name, held in passed.leaves(copied).items():
                kind = held.kind if held.kind in (GENERATOR, TAG) else ARGUMENT
                seen.values[name + where] = Leaf(kind, held.value, held.owner)

    def _inputs(self, number: int) -> tuple[list[Any], dict[str, Any], dict[str, Tensor]]:
        scenario, target = self._scenario, self._target
        length = scenario.lengths[number] if number < len(scenario.lengths) else 0
        return target.inputs(scenario.grads_of(target.grads), number, self._in_float64, length=length)

    def _forward(self, args: list[Any], kwargs: dict[str, Any], number: int, where: str) -> list[Tensor | None]:
        """Runs one forward, and returns its parts of the loss."""
        scenario, seen, target = self._scenario, self._seen, self._target
        before = {id(t) for t in target.state.tensors().values()}
        if scenario.unused_forward:
            extra = self._inputs(1)
            with scenario.ambient(_device(args, kwargs)):
                self._call(extra[0], extra[1])
        if target.tape is not None:
            target.tape.wind(number)
        looks = target.branches is not None and self._variant is None and not scenario.compiled
        noted = target.branches.noted() if looks else nullcontext()
        with scenario.ambient(_device(args, kwargs)), target.within(), noted:
            returned = self._call(args, kwargs)
        self._returned.append((where, returned))
        seen.values.update({n + where: Leaf(OUTPUT, v) for n, v in _answers(returned).items()})
        outputs = State({"output": returned}).tensors()
        for name, output in outputs.items():
            seen.values[name + where] = Leaf(OUTPUT, copied(output))
            seen.flags[name + where] = has_history(output)
        beside = {n: t for n, t in target.state.tensors().items() if id(t) not in before}
        for name in target.state.derived():
            beside.pop(name, None)
        for name, t in beside.items():
            if t.is_floating_point():
                seen.flags[name + where] = has_history(t)
        loss = target.loss_of(returned)
        # A tensor that a module leaves on itself, such as an auxiliary loss, is part of the loss.
        return [loss, total_of([t for t in beside.values() if not t.is_leaf])]

    def _backward(self, loss: Any) -> None:
        if not isinstance(loss, Tensor) or not loss.requires_grad:
            return
        self._calls.backward()
        if self._target.tape is not None:
            self._target.tape.backward()
        for i in range(self._scenario.backwards):
            keep = i + 1 < self._scenario.backwards
            if self._in_float64:
                wide.backward(loss, keep)
            else:
                loss.backward(retain_graph=keep)

    def _call(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        function = called(self._target, self._scenario, self._variant)
        if not self._scenario.compiled:
            return function(*args, **kwargs)
        torch.compiler.reset()
        # A module that is compiled itself is marked.
        return torch.compile(lambda *a, **k: function(*a, **k), backend=self._scenario.compiled)(*args, **kwargs)


def called(target: Target, scenario: Scenario, variant: Variant | None) -> Callable[..., Any]:
    """Returns a function that checkpoints the target as `variant` says; the target itself if `variant` is None."""
    function = target.function
    if variant is None or variant.own:
        return function
    reentrant, options = variant.reentrant, {**scenario.options(), **variant.options}

    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        if reentrant and kwargs:
            # This variant takes no keyword arguments: callers bind them.
            return checkpoint(partial(function, **kwargs), *args, use_reentrant=True, **options)
        return checkpoint(function, *args, use_reentrant=reentrant, **options, **kwargs)

    return checkpointed


def _answers(value: Any, name: str = "output") -> dict[str, Any]:
    """Returns the parts of a result that are not tensors: numbers, texts, and how much containers hold."""
    if isinstance(value, (bool, int, float, str, type(None))):
        return {name: value}
    found: dict[str, Any] = {}
    if isinstance(value, (Mapping, list, tuple, deque)):
        if not isinstance(value, tuple):
            found[name] = Extent("entries" if isinstance(value, Mapping) else "elements", len(value))
        for key, part in parts_of(value):
            found |= _answers(part, f"{name}[{key!r}]")
    elif is_dataclass(value) and not isinstance(value, type):
        for part in fields(value):
            found |= _answers(getattr(value, part.name, None), f"{name}.{part.name}")
    return found


def _device(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    tensors = State(named_arguments(args, kwargs)).tensors().values()
    return next((t.device.type for t in tensors), "cpu")


def _update(parameters: Any) -> None:
    with torch.no_grad():
        for parameter in parameters:
            if parameter.grad is not None:
                parameter -= LEARNING_RATE * parameter.grad
