"""One training step of a model under a choice for its blocks: its bytes, its times, its numbers."""

from __future__ import annotations

import gc
import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves

from rematch.journal.journal import BACKWARD, RECOMPUTATION, Journal, warning_of
from rematch.journal.operators import Execution, Reader
from rematch.journal.regions import Region, Regions, told
from rematch.journal.storages import OPTIMIZER, AllocatorMeter, Curve, StorageMeter
from rematch.plan.options import Applied, Contexts
from rematch.safe.run import Target, seed_all

TAIL = "after the blocks"
LOSS = "the backward of the loss"
END = "after the backward"
Meter = StorageMeter | AllocatorMeter
MakeOptimizer = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


@dataclass
class Measured:
    """A step. Executions of blocks are numbered in the order of the forward."""

    executions: list[str] = field(default_factory=list)
    """The block that each execution is of."""
    curve: Curve = field(default_factory=Curve)
    forward: list[float] = field(default_factory=list)
    """Seconds of each execution's forward."""
    again: list[float] = field(default_factory=list)
    """Seconds of each execution's recomputation."""
    seconds: float = 0.0
    numbers: dict[str, str] = field(default_factory=dict)
    """The loss, and a hash of the bits of each gradient and buffer, by name."""
    in_order: bool = True
    """Whether the backwards of the executions came in the reverse order of their forwards."""


class Step:
    """Runs steps of a model, which is as before afterwards."""

    def __init__(
        self,
        target: Target,
        blocks: Sequence[str],
        options: Mapping[str, Contexts | None],
        optimizer: MakeOptimizer | None,
        seed: int,
    ) -> None:
        self.model: nn.Module = target.function  # type: ignore[assignment]
        self.target, self.blocks, self.options = target, list(blocks), options
        self.optimizer, self._seed = optimizer, seed
        self.is_fake = any(isinstance(p, FakeTensor) for p in self.model.parameters())
        device = next((p.device for p in self.model.parameters()), torch.device("cpu"))
        self._device = device
        self.by_allocator = device.type == "cuda" and not self.is_fake

    def bytes_of(self, choices: Mapping[str, str]) -> Measured:
        """Counts bytes. Raises what the step raises."""
        seen = Measured()

        def meter() -> Meter:
            return AllocatorMeter(self._device) if self.by_allocator else StorageMeter()

        self._run(choices, seen, meter)
        return seen

    def times_of(self, choices: Mapping[str, str]) -> Measured:
        """Takes times, and counts nothing."""
        seen = Measured()
        self._run(choices, seen, None)
        return seen

    def _run(self, choices: Mapping[str, str], seen: Measured, make: Callable[[], Meter] | None) -> None:
        target, model = self.target, self.model
        target.begin(self._seed)
        if target.switch is not None:
            target.switch(model, False)
        trained = [p for p in model.parameters() if p.requires_grad]
        for parameter in trained:
            parameter.grad = None
        optimizer = self.optimizer(trained) if self.optimizer is not None else None
        if optimizer is not None:
            self._warm(optimizer, trained)
        args, kwargs, _ = target.inputs(target.asked, 0)
        seed_all(self._seed)
        gc.collect()
        # When Python finds cycles is chance: what only it frees counts as live.
        collects = gc.isenabled()
        gc.disable()
        try:
            with Applied(model, choices, self.options), ExitStack() as stack:
                stack.enter_context(target.within())
                if make is None:
                    with self._timed(seen):
                        self._once(args, kwargs, optimizer, seen, None)
                else:
                    meter = make()
                    self._given(meter, args, kwargs, optimizer)
                    with self._marked(seen, meter):
                        self._once(args, kwargs, optimizer, seen, meter)
                    seen.curve = meter.curve
            if not self.is_fake and make is not None:
                seen.numbers.update(self._numbers())
        finally:
            if collects:
                gc.enable()

    def _once(self, args: Any, kwargs: Any, optimizer: Any, seen: Measured, meter: Meter | None) -> None:
        begin = self._now()
        returned = self.model(*args, **kwargs)
        loss = self.target.loss(returned) if self.target.loss is not None else loss_of(returned)
        if not self.is_fake and meter is not None:
            seen.numbers["the loss"] = repr(loss.item())
        del returned
        if meter is not None:
            meter.mark(LOSS)
        with _during(meter, BACKWARD):
            loss.backward()
        del loss
        if meter is not None:
            meter.gradients(p.grad for p in self.model.parameters() if p.grad is not None)
            meter.mark(END)
        if optimizer is not None:
            with _during(meter, OPTIMIZER):
                optimizer.step()
        seen.seconds = self._now() - begin

    def _given(self, meter: Meter, args: Any, kwargs: Any, optimizer: Any) -> None:
        model = self.model
        meter.belongs("parameters", model.parameters())
        if optimizer is not None:
            states = (t for s in optimizer.state.values() for t in tree_leaves(s) if isinstance(t, Tensor))
            meter.belongs("states of the optimizer", states)
        meter.belongs("the batch", (t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)))
        meter.belongs("buffers and other tensors of the model", model.buffers())
        meter.belongs("buffers and other tensors of the model", self.target.state.tensors().values())

    def _warm(self, optimizer: torch.optim.Optimizer, trained: Sequence[nn.Parameter]) -> None:
        """A first step makes the optimizer's states: what is measured is a later one."""
        kept = [p.detach().clone() for p in trained]
        for parameter in trained:
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            for parameter, value in zip(trained, kept, strict=True):
                parameter.copy_(value)

    @contextmanager
    def _marked(self, seen: Measured, meter: Meter) -> Iterator[None]:
        """Tells the meter where blocks begin, forward and backward, and what is recomputed."""
        modules = dict(self.model.named_modules())
        marks = _Marks(seen, meter, self.blocks)
        readers = [marks, meter] if isinstance(meter, StorageMeter) else [marks]
        marks.journal = Journal(modules, *readers, unseen=warning_of("rematch.plan"))
        try:
            with marks.journal.open(), meter if isinstance(meter, AllocatorMeter) else nullcontext():
                yield
        finally:
            seen.in_order = marks.backwards == list(range(len(seen.executions)))[::-1]

    @contextmanager
    def _timed(self, seen: Measured) -> Iterator[None]:
        blocks = {self.model.get_submodule(name): name for name in self.blocks}
        regions = _Times(seen, self._now)
        begun: list[float] = []

        def enter(module: nn.Module, args: Any) -> None:
            if not regions.depth:
                seen.executions.append(blocks[module])
                seen.again.append(0.0)
                regions.current = len(seen.executions) - 1
                begun.append(self._now())

        def leave(*_: Any) -> None:
            if not regions.depth:
                seen.forward.append(self._now() - begun.pop())

        with _hooked(blocks, enter, leave), told(regions):
            yield

    def _now(self) -> float:
        if self.by_allocator:
            torch.cuda.synchronize(self._device)
        return time.perf_counter()

    def _numbers(self) -> dict[str, str]:
        found = {f"gradient of {n}": _hash(p.grad) for n, p in self.model.named_parameters() if p.grad is not None}
        found.update({f"buffer {n}": _hash(b) for n, b in self.model.named_buffers()})
        return found


def loss_of(returned: Any) -> Tensor:
    """The loss that a model returns, or the sum of what it returns. Raises ValueError where there is neither."""
    loss = getattr(returned, "loss", None)
    if isinstance(loss, Tensor):
        return loss
    parts = [t for t in tree_leaves(returned) if isinstance(t, Tensor) and t.requires_grad]
    if not parts:
        raise ValueError("nothing that the model returns requires grad: hand over loss=, a function of what it returns")
    return sum((t.abs().sum() if t.is_complex() else t.sum() for t in parts[1:]), parts[0].sum())


class _Marks(Reader):
    """Says to a meter what runs: in which phase, in which submodule, and where the blocks begin."""

    def __init__(self, seen: Measured, meter: Meter, blocks: Sequence[str]) -> None:
        self.backwards: list[int] = []
        self.journal: Journal
        self._seen, self._meter, self._blocks = seen, meter, set(blocks)

    def enters(self, module: str) -> None:
        self._meter.module = module
        if module in self._blocks and not self.journal.recomputes:
            self._meter.mark(f"forward {len(self._seen.executions)}")
            self._seen.executions.append(module)

    def leaves(self, module: str, returned: Any) -> None:
        self._meter.module = self.journal.module
        if module not in self._blocks or self.journal.recomputes:
            return
        number = len(self._seen.executions) - 1
        self._meter.mark(TAIL)
        first = next((t for t in tree_leaves(returned) if isinstance(t, Tensor) and t.grad_fn is not None), None)
        node = None if first is None else first.grad_fn
        if node is not None:

            def reached(_: Any) -> None:
                # A node with several outputs may be reached again.
                if number not in self.backwards:
                    self.backwards.append(number)
                    self._meter.mark(f"backward {number}")

            node.register_prehook(reached)

    def begins(self, execution: Execution) -> None:
        execution.notes = self._meter.phase, self._meter.module
        if execution.recomputes:
            self._meter.phase = RECOMPUTATION

    def ends(self, execution: Execution) -> None:
        if execution.recomputes:
            self._meter.phase, self._meter.module = execution.notes


class _Times(Regions):
    """Recomputation times, by the execution in which each region began."""

    def __init__(self, seen: Measured, now: Callable[[], float]) -> None:
        super().__init__()
        self.depth, self.current = 0, 0
        self._seen, self._now = seen, now
        self._of: dict[int, int] = {}

    def begin(self, region: Region, recomputes: bool) -> Any:
        if not recomputes:
            self._of[region.number] = self.current
            return None
        self.depth += 1
        return region.number, self._now()

    def end(self, token: Any) -> None:
        if token is None:
            return
        self.depth -= 1
        number, begin = token
        if self.depth == 0 and number in self._of:
            self._seen.again[self._of[number]] += self._now() - begin


@contextmanager
def _hooked(modules: Iterable[nn.Module], enter: Callable[..., None], leave: Callable[..., None]) -> Iterator[None]:
    """Within, `enter` is called before the forward of each module, and `leave` after it, even if it raises."""
    hooks = [
        hook
        for m in modules
        for hook in (m.register_forward_pre_hook(enter), m.register_forward_hook(leave, always_call=True))
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def _during(meter: Meter | None, phase: str) -> Iterator[None]:
    if meter is None:
        yield
        return
    with meter.during(phase):
        yield


def _hash(t: Tensor | None) -> str:
    if t is None or t.layout is not torch.strided:
        return ""
    data = t.detach().contiguous().flatten().view(torch.uint8).cpu().numpy()
    return hashlib.blake2b(data.data, digest_size=16).hexdigest()
