"""Runs one training step of a model under a choice for its blocks, and measures its bytes, its times, its numbers."""

import gc
import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves

from rematch.journal.journal import BACKWARD, FORWARD, RECOMPUTATION, Journal, warning_of
from rematch.journal.operators import Execution, Operator, Reader
from rematch.journal.storages import OPTIMIZER, AllocatorMeter, Curve, StorageMeter, storages
from rematch.plan.options import Applied, Contexts
from rematch.plan.policies import Ran
from rematch.safe.generators import seed_all
from rematch.safe.target import Target

TAIL = "after the blocks"
LOSS = "the backward of the loss"
END = "after the backward"
Meter = StorageMeter | AllocatorMeter
MakeOptimizer = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


@dataclass
class Measured:
    """What was measured of a step. Executions of blocks are numbered in the order of the forward."""

    executions: list[str] = field(default_factory=list)
    """The name of the block that each execution runs."""
    called: set[str] = field(default_factory=set)
    """The names of submodules that were called, of which blocks or children are blocks, or of all."""
    curve: Curve = field(default_factory=Curve)
    forward: list[float] = field(default_factory=list)
    """Seconds of each execution's forward."""
    again: list[float] = field(default_factory=list)
    """Seconds of each execution's recomputation."""
    ran: list[list[Ran]] = field(default_factory=list)
    """The operators of each execution's recomputation, if they were asked for."""
    seconds: float = 0.0
    held: int = 0
    """Bytes that are live when the backward begins, beside the loss and what was there before the step."""
    numbers: dict[str, str] = field(default_factory=dict)
    """The loss, and a hash of the bits of each gradient and buffer, by name."""
    backwards: list[int] = field(default_factory=list)
    """Numbers of executions in the order of their backwards; empty if times were taken."""

    @property
    def in_order(self) -> bool:
        """Whether backwards came in the reverse order of the forwards; a frozen block has none."""
        return self.backwards == sorted(self.backwards, reverse=True)


class Step:
    """Runs steps of a model, which is left as before."""

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
        """Runs a step and counts its bytes. Raises what the step raises."""

        def marks() -> _Marks:
            return _Marks(self.blocks, AllocatorMeter(self._device) if self.by_allocator else _Storages())

        seen = self._run(choices, marks)
        if not self.is_fake:
            seen.numbers.update(self._numbers())
        return seen

    def times_of(self, choices: Mapping[str, str]) -> Measured:
        """Runs a step and takes the times of its blocks; counts no bytes."""
        return self._run(choices, lambda: _Times(self.blocks, self.now), threads=1)

    def seconds_of(self, choices: Mapping[str, str], call: Callable[..., Any] | None = None) -> float:
        """Runs a step that nothing watches, with `call` in place of the model, if given. On the CPU it runs on one
        thread and returns the CPU time of the process, which other load does not lengthen."""
        return self._run(choices, _Unwatched, threads=1, call=call).seconds

    def operators_of(self, choices: Mapping[str, str]) -> Measured:
        """Runs a step and notes which operators recomputations run, their bytes and their times."""
        return self._run(choices, lambda: _Operators(self.blocks, self.now), threads=1)

    def _run(
        self,
        choices: Mapping[str, str],
        make: "Callable[[], _Blocks]",
        threads: int | None = None,
        call: Callable[..., Any] | None = None,
    ) -> Measured:
        target, model, usual = self.target, self.model, torch.get_num_threads()
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
        # Chance decides when Python collects cycles: memory that only the collector frees counts as live.
        collects = gc.isenabled()
        gc.disable()
        torch.set_num_threads(threads or usual)
        try:
            with Applied(model, choices, self.options), target.within():
                blocks = make()
                if blocks.meter is not None:
                    self._given(blocks.meter, args, kwargs, optimizer)
                with blocks.told_of(model):
                    self._once(model if call is None else call, args, kwargs, optimizer, blocks.seen, blocks.meter)
            return blocks.seen
        finally:
            torch.set_num_threads(usual)
            if collects:
                gc.enable()

    def _once(
        self, call: Callable[..., Any], args: Any, kwargs: Any, optimizer: Any, seen: Measured, meter: Meter | None
    ) -> None:
        begin = self.now()
        returned = call(*args, **kwargs)
        loss = self.target.loss_of(returned, weigh=False)
        if loss is None:
            raise ValueError(
                "nothing that the model returns requires grad: hand over loss=, a function of what it returns"
            )
        if not self.is_fake and meter is not None:
            seen.numbers["the loss"] = repr(loss.item())
        del returned
        if meter is not None:
            meter.mark(LOSS)
            before, *_, now = meter.curve.marks
            seen.held = now.live - before.live - sum(storage.nbytes() for storage in storages(loss))
        loss.backward()
        del loss
        if meter is not None:
            meter.gradients(p.grad for p in self.model.parameters() if p.grad is not None)
            meter.mark(END)
        if optimizer is not None:
            optimizer.step()
        seen.seconds = self.now() - begin

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
        """Runs a first step, which makes the optimizer's states: the measured step is a later one."""
        kept = [p.detach().clone() for p in trained]
        for parameter in trained:
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            for parameter, value in zip(trained, kept, strict=True):
                parameter.copy_(value)

    def now(self) -> float:
        """Returns a time in seconds: on the CPU that of the process, which other load does not use up."""
        if self._device.type == "cpu":
            return time.process_time()
        if self.by_allocator:
            torch.cuda.synchronize(self._device)
        return time.perf_counter()

    def _numbers(self) -> dict[str, str]:
        found = {f"gradient of {n}": _hash(p.grad) for n, p in self.model.named_parameters() if p.grad is not None}
        found.update({f"buffer {n}": _hash(b) for n, b in self.model.named_buffers()})
        return found


class _Storages(StorageMeter):
    """Counts storages, by the phase and submodule that a journal tells."""

    journal: Journal
    _phase = FORWARD

    def mark(self, name: str) -> None:
        self._phase = {LOSS: BACKWARD, END: OPTIMIZER}.get(name, self._phase)
        super().mark(name)

    def after(self, op: Operator) -> None:
        self.phase = RECOMPUTATION if self.journal.recomputes else self._phase
        self.module = self.journal.module
        super().after(op)


class _Blocks(Reader):
    """Numbers the executions of blocks; derived classes measure them."""

    journal: Journal

    def __init__(self, blocks: Sequence[str], meter: Meter | None = None) -> None:
        self.blocks, self.meter, self.seen = frozenset(blocks), meter, Measured()

    @contextmanager
    def told_of(self, model: nn.Module) -> Iterator[None]:
        """Within, a journal tells of the model's blocks, and tells the meter of its operators."""
        modules, readers = dict(model.named_modules()), [self]
        if isinstance(self.meter, _Storages):
            readers.append(self.meter)
        else:
            modules = {name: modules[name] for block in self.blocks for name in (block, block.rpartition(".")[0])}
        meter = self.meter if isinstance(self.meter, AllocatorMeter) else nullcontext()
        self.journal = Journal(modules, *readers, unseen=warning_of("rematch.plan"))
        for reader in readers:
            reader.journal = self.journal
        with self.journal.open(), meter:
            yield

    def enters(self, module: str) -> None:
        self.seen.called.add(module)
        if module in self.blocks and not self.journal.recomputes:
            self.block_begins(len(self.seen.executions))
            self.seen.executions.append(module)

    def leaves(self, module: str, returned: Any) -> None:
        if module in self.blocks and not self.journal.recomputes:
            self.block_ends(len(self.seen.executions) - 1, returned)

    def block_begins(self, number: int) -> None:
        """The forward of an execution begins."""
        raise NotImplementedError

    def block_ends(self, number: int, returned: Any) -> None:
        """The forward of an execution is over."""
        raise NotImplementedError


class _Unwatched(_Blocks):
    """Looks at nothing."""

    def __init__(self) -> None:
        super().__init__(())

    @contextmanager
    def told_of(self, model: nn.Module) -> Iterator[None]:
        yield


class _Marks(_Blocks):
    """Tells a meter where blocks begin, in the forward and in the backward."""

    meter: Meter

    def __init__(self, blocks: Sequence[str], meter: Meter) -> None:
        super().__init__(blocks, meter)
        self.seen.curve = meter.curve

    def block_begins(self, number: int) -> None:
        self.meter.mark(f"forward {number}")

    def block_ends(self, number: int, returned: Any) -> None:
        self.meter.mark(TAIL)
        first = next((t for t in tree_leaves(returned) if isinstance(t, Tensor) and t.grad_fn is not None), None)

        def reached(_: Any) -> None:
            # A node with several outputs may be reached again.
            if number not in self.seen.backwards:
                self.seen.backwards.append(number)
                self.meter.mark(f"backward {number}")

        if first is not None:
            first.grad_fn.register_prehook(reached)


class _Times(_Blocks):
    """Takes the times of forwards and recomputations with the clock `now`."""

    def __init__(self, blocks: Sequence[str], now: Callable[[], float]) -> None:
        super().__init__(blocks)
        self.now = now
        self._of: dict[int, int] = {}
        """The execution in which each region began."""
        self._begun = 0.0
        self._outermost: Execution | None = None
        """The outermost recomputation that is under way."""

    def block_begins(self, number: int) -> None:
        self.seen.again.append(0.0)
        self._begun = self.now()

    def block_ends(self, number: int, returned: Any) -> None:
        self.seen.forward.append(self.now() - self._begun)

    def begins(self, execution: Execution) -> None:
        if not execution.recomputes:
            self._of[execution.region.number] = max(0, len(self.seen.executions) - 1)
        elif self._outermost is None:
            self._outermost, execution.notes = execution, self.now()

    def ends(self, execution: Execution) -> None:
        if execution is self._outermost:
            self._outermost = None
            if (number := self._of.get(execution.region.number)) is not None:
                self.seen.again[number] += self.now() - execution.notes


class _Operators(_Times):
    """Notes the operators of recomputations."""

    def block_begins(self, number: int) -> None:
        super().block_begins(number)
        self.seen.ran.append([])

    def begins(self, execution: Execution) -> None:
        super().begins(execution)
        self._maker: dict[int, int] = {}
        """The operator that made a storage, of those of this recomputation."""

    def before(self, op: Operator) -> None:
        op.notes = self.now()

    def after(self, op: Operator) -> None:
        seconds = self.now() - op.notes
        if self._outermost is None or (number := self._of.get(self._outermost.region.number)) is None:
            return
        ran = self.seen.ran[number]
        made = list(chain.from_iterable(map(storages, op.made())))
        if op.func._schema.is_mutable:
            for storage in made:
                if (maker := self._maker.get(storage._cdata)) is not None:
                    ran[maker] = replace(ran[maker], written=True)
        else:
            self._maker.update((storage._cdata, len(ran)) for storage in made if not op.func.is_view)
        again = sum(one.op is op.func for one in ran)
        ran.append(Ran(op.func, again, sum(storage.nbytes() for storage in made), seconds))


def _hash(t: Tensor | None) -> str:
    if t is None or t.layout is not torch.strided:
        return ""
    data = t.detach().contiguous().flatten().view(torch.uint8).cpu().numpy()
    return hashlib.blake2b(data.data, digest_size=16).hexdigest()
