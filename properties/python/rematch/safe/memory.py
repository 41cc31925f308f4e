"""Measures the bytes of a target's own training steps by storages: what is held, the peak, and what stays behind."""

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch.utils.checkpoint as library
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from rematch.journal import regions
from rematch.journal.journal import FORWARD, RECOMPUTATION, Journal
from rematch.journal.operators import Execution, Operator
from rematch.journal.storages import Allocation, StorageMeter, storages
from rematch.safe.blocks import outermost
from rematch.safe.generators import seed_all
from rematch.safe.process import DoesNotEnd
from rematch.safe.scenarios import FIRST, Variant
from rematch.safe.state import State
from rematch.safe.target import Target, named_arguments
from rematch.safe.target_run import called, patience_with

STEPS, MORE = 2, 2
"""How many steps are measured, and how many more if the second leaves more behind than the first."""


@dataclass
class Policy:
    """The answers of a selective policy in a run: the operators whose results it kept, and those that it recomputed."""

    kept: set[str] = field(default_factory=set)
    recomputed: set[str] = field(default_factory=set)

    def note(self, context: Any) -> None:
        """Adds the answers from the context of a forward that is over; contexts of other libraries hold none."""
        again = getattr(library, "_RECOMPUTE", None)
        for key, answers in (getattr(context, "storage", None) or {}).items() if again is not None else ():
            name = str(key[0] if isinstance(key, tuple) else key)
            for answer in answers.values():
                (self.recomputed if answer is again else self.kept).add(name)


@dataclass
class Step:
    """The bytes of one step, without what was there before the first step and without the batch."""

    held: int = 0
    """After the forward, when the caller holds only the loss: what the backward needs, whoever keeps it."""
    peak: int = 0
    left: int = 0
    """What is left after the backward, without gradients."""
    collected: int = 0
    """The part of `left` that Python's garbage collector frees: reference cycles."""
    regions: int = 0


@dataclass
class Footprint:
    """The memory of the steps of one run."""

    steps: list[Step] = field(default_factory=list)
    outside: dict[str, int] = field(default_factory=dict)
    """Bytes made outside of regions that are held after the first forward, by submodule."""
    checkpointed: list[str] = field(default_factory=list)
    """Names of the modules that checkpoint() got, in the first step."""
    called: set[str] = field(default_factory=set)
    within: set[str] = field(default_factory=set)
    """Names of the modules that ran, and of those that ran within a region."""
    recorded: set[str] = field(default_factory=set)
    """Names of modules whose results require grad."""
    policies: dict[str, Policy] = field(default_factory=dict)
    """The answers of policies, by the name of their context_fn."""
    error: str = ""

    @property
    def held(self) -> int:
        """Bytes that the first step needs for its backward."""
        return self.steps[0].held

    @property
    def peak(self) -> int:
        """The most bytes of a step."""
        return max(step.peak for step in self.steps)

    @property
    def growth(self) -> int:
        """The least growth of what stays behind from one step to the next, without what the garbage collector frees."""
        left = [step.left - step.collected for step in self.steps]
        return max(0, min(later - earlier for earlier, later in zip(left[:-1], left[1:], strict=True)))

    def recomputes(self, name: str) -> bool:
        """Whether the module `name`, one around it, or a child of it (as in wrappers) is checkpointed."""
        has = any(name == one or name.startswith(one + ".") for one in self.checkpointed)
        return has or name in self.within or any(one.rpartition(".")[0] == name for one in self.checkpointed)


class _Meter(StorageMeter):
    """A meter that a journal tells where memory is made."""

    journal: Journal

    def __init__(self, seen: Footprint, named: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self._seen = seen
        self._names = {module: name for name, module in named.items()}
        self._depth = 0
        self._taken: set[int] = set()

    def _of(self, value: Any) -> list[Allocation]:
        """Returns the allocations of the tensors in a structure."""
        tensors = [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]
        found = [self.allocation(storage) for t in tensors for storage in storages(t)]
        return [one for one in found if one is not None]

    def after(self, op: Operator) -> None:
        self.phase = RECOMPUTATION if self._depth else self.journal.phase
        self.module = self.journal.module
        super().after(op)

    def outside_of_regions(self) -> dict[str, int]:
        """Returns the live bytes that the forward made outside of regions, by submodule. Inputs of regions are left
        out, as the regions need them."""
        found: dict[str, int] = {}
        for one in self.curve.allocations:
            if one.died is None and one.phase == FORWARD and id(one) not in self._taken:
                found[one.module] = found.get(one.module, 0) + one.bytes
        return found

    def enters(self, module: str) -> None:
        self._seen.called.add(module)
        if self._depth:
            self._seen.within.add(module)

    def leaves(self, module: str, returned: Any) -> None:
        if any(leaf.requires_grad for leaf in tree_leaves(returned) if isinstance(leaf, Tensor)):
            self._seen.recorded.add(module)
        # A result counts as memory of the module that called.
        for one in self._of(returned):
            if one.module == module:
                one.module = self.journal.module

    def begins(self, execution: Execution) -> None:
        self._depth += 1
        if execution.recomputes:
            return
        self._taken |= {id(one) for one in self._of((execution.region.args, execution.region.kwargs))}
        name = outermost(execution.region, self._names)
        if name and name not in self._seen.checkpointed:
            self._seen.checkpointed.append(name)

    def ends(self, execution: Execution) -> None:
        self._depth -= 1
        region = execution.region
        if region.contexts is not None and not execution.recomputes:
            self._seen.policies.setdefault(_name(region.context_fn), Policy()).note(region.contexts[0])


def measure(target: Target, variant: Variant | None, seed: int) -> Footprint:
    """Measures the bytes of training steps of `target`, checkpointed as `variant` says; None: plain.

    The inputs of a model that checkpoints itself are a batch: the caller holds it, and only the inputs that were asked
    to require grad do. The inputs of other targets are activations, which live as long as something needs them. An
    error of the target ends up in Footprint.error. The process is left as it was found.
    """
    seen = Footprint()
    target.begin(seed)
    function = target.function
    try:
        if target.switch is not None:
            target.switch(function, variant is not None)
        named = dict(function.named_modules()) if isinstance(function, nn.Module) else target.state.modules()
        meter = _Meter(seen, named)
        meter.journal = Journal(named, meter, unseen=lambda what, why: target.unseen.update({what: regions.why(why)}))
        meter.belongs("parameters, buffers and other tensors", target.state.tensors().values())
        steps = _Steps(target, variant, seed, meter)
        replaced = target.tape.playing(target.state.functions()) if target.tape else nullcontext()
        with patience_with(target), _uncollected(), replaced:
            while len(seen.steps) < STEPS or (len(seen.steps) < STEPS + MORE and seen.growth):
                seen.steps.append(steps.once(seen))
    except (Exception, DoesNotEnd) as error:
        seen.error = f"{type(error).__name__}: {error}"
    finally:
        target.process.restore()
    return seen


class _Steps:
    """Runs the training steps of a target under a meter."""

    def __init__(self, target: Target, variant: Variant | None, seed: int, meter: _Meter) -> None:
        self._target, self._variant, self._seed, self._meter = target, variant, seed, meter
        self._base = meter.live

    def once(self, seen: Footprint) -> Step:
        target, meter, step = self._target, self._meter, Step()
        args, kwargs, leaves = target.inputs(target.asked if target.is_model else target.grads, 0, own_gradients=False)
        seed_all(self._seed)
        if target.tape is not None:
            target.tape.wind(0)
        given = list(State(named_arguments(args, kwargs)).tensors().values())
        batch = given if target.is_model else []
        meter.belongs("the batch", [*leaves.values(), *batch])
        before = meter.live
        meter.belongs("activations that are handed over", given)
        del given
        meter.mark("step")
        mark, count = meter.curve.marks[-1], meter.journal.count
        plain = self._variant is None
        with regions.plain() if plain else nullcontext(), meter.journal.attached() if plain else meter.journal.open():
            with target.within():
                returned = called(target, FIRST, self._variant)(*args, **kwargs)
            loss = target.loss_of(returned, weigh=False)
            del args, kwargs, returned
            own = 0
            if isinstance(loss, Tensor) and loss.requires_grad:
                own = sum(storage.nbytes() for storage in storages(loss))
            step.held = meter.live - before - own
            if not seen.steps:
                seen.outside = meter.outside_of_regions()
            if own:
                meter.journal.backward()
                loss.backward()
            del loss
        step.regions = meter.journal.count - count
        step.peak = mark.most - before
        batch.clear()
        leaves.clear()
        for parameter in target.state.trainable().values():
            parameter.grad = None
        left = meter.live
        gc.collect()
        step.left, step.collected = left - self._base, left - meter.live
        return step


@contextmanager
def _uncollected() -> Iterator[None]:
    """Within, Python's garbage collector runs only when it is called, and looks only at objects made within."""
    collects = gc.isenabled()
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        if collects:
            gc.enable()


def _name(context_fn: Any) -> str:
    """Returns the name of a context_fn for reports: that of the policy that it is bound to, if there is one."""
    if isinstance(context_fn, partial):
        functions = [a for a in (*context_fn.args, *context_fn.keywords.values()) if callable(a)]
        return _name(functions[0] if functions else context_fn.func)
    return str(getattr(context_fn, "__qualname__", type(context_fn).__name__))
