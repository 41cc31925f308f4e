"""Looking at a run from outside: nothing of PyTorch is patched."""

import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.distributed._functional_collectives import AsyncCollectiveTensor

from rematch.frameworks.pytorch.memory import Kept, Memory
from rematch.frameworks.pytorch.policy_check import POLICY, Place, PolicyCheck
from rematch.journal.operators import Operator, OperatorsOfEager, Reader
from rematch.subjects.adapter_layers import OUTPUTS
from rematch.subjects.records import Record, bits_of, entry_of, hash64


def to_numpy(t: Tensor) -> np.ndarray:
    """The elements of a tensor; those of bfloat16 as 16-bit integers with the same bits."""
    if isinstance(t, AsyncCollectiveTensor):
        # Its numbers may be on their way.
        t = t.trigger_wait()
    if t.dtype == torch.bfloat16:
        t = t.detach().view(torch.int16)
    return t.numpy(force=True)


_unseen = torch._C._DisableTorchDispatch
"""A scope: what a watch itself does to tensors is not to be seen."""


class Watch:
    """Sees the layers run, and which of their outputs require grad."""

    def __init__(self, record: Record | None = None) -> None:
        self.record = record
        self.place: Place | None = None
        self.kept: set[Any] = set()
        """Operators of which policies keep results."""
        self._inputs: Sequence[Tensor] = ()

    def enter(self, place: Place) -> Place | None:
        """A layer begins. What is returned is given to leave()."""
        outer, self.place = self.place, place
        return outer

    def returned(self, operands: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        """The layer has returned what it made of `operands`."""
        place = self.place
        if self.record is None or place is None:
            return
        place.complete = True
        if place.execution != 0:
            return
        for k, output in enumerate(outputs):
            flag = output.requires_grad
            if flag and not torch.is_grad_enabled():
                # A view that was made without recording reports the flag of its base, but has no
                # history.
                flag = output.grad_fn is not None or any(output is i for i in self._inputs)
            self.record.add("grad_flags", output=k, requires_grad=flag, **place.where)

    def leave(self, outer: Place | None) -> None:
        """The layer is over, perhaps because early stop or an error ended it."""
        self.place = outer

    def replaced(self, state: Iterable[Tensor]) -> None:
        """These are buffers of the model, perhaps others than before."""

    def starts(self, inputs: Sequence[Tensor], target: Tensor) -> None:
        """A forward begins, with these inputs and this target."""
        self._inputs = inputs

    def forward(self) -> AbstractContextManager[Any]:
        """Returns the context in which a forward and its loss run."""
        return nullcontext()

    def model(self, offload: bool) -> AbstractContextManager[Any]:
        """Surrounds the model, within a forward. `offload`: what is saved waits on the host."""
        return save_on_cpu() if offload else nullcontext()

    def backward(self) -> AbstractContextManager[Any]:
        """Surrounds a backward."""
        return nullcontext()

    def goes_by_operators(self, begin: int, end: int, hooks: bool) -> None:
        """The layers [begin, end) run under a policy that goes by operators. `hooks`: within hooks, whose
        operators run as well."""

    def note_executions(self, counts: list[int], **place: Any) -> None:
        """Notes how often each layer ran for a forward."""

    def note_policies(self) -> None:
        """Notes whether what ran is what the policies by operators say."""

    def note_bytes(self, moment: str, **place: Any) -> None:
        """Notes what is live now."""

    def note_step(self, step: int) -> None:
        """A step is over."""


class Saves(Watch):
    """Sees what graphs keep, by hooks on saved tensors. `memory` knows the model's own memory."""

    def __init__(self, record: Record, memory: Memory) -> None:
        super().__init__(record)
        self._memory = memory

    def replaced(self, state: Iterable[Tensor]) -> None:
        self._memory.belongs_to_model(state)

    def starts(self, inputs: Sequence[Tensor], target: Tensor) -> None:
        super().starts(inputs, target)
        self._memory.enters([*inputs, target])

    @contextmanager
    def forward(self) -> Iterator[None]:
        with saved_tensors_hooks(self._pack, Kept.unpack):
            yield

    def model(self, offload: bool) -> AbstractContextManager[Any]:
        if not offload:
            return nullcontext()
        hooks = save_on_cpu()
        return saved_tensors_hooks(
            lambda t: self._memory.keep(t, hooks.pack_hook(t), offloaded=True),
            lambda kept: hooks.unpack_hook(kept.value),
        )

    def note_bytes(self, moment: str, temporaries: int = 0, **place: Any) -> None:
        saved, offloaded = self._memory.saved(), self._memory.saved(offloaded=True)
        sizes = {"saved": saved, "offloaded": offloaded, "temporaries": temporaries}
        self.record.add("bytes", moment=moment, **sizes, **place)

    def _pack(self, t: Tensor) -> Kept:
        # A node that kept its own result would hold itself.
        with _unseen():
            if t.dtype is torch.uint8 and t.shape == _RANDOM_STATE:
                # The graph of a compiled function keeps random states among its tensors, checkpoint() beside them.
                self._memory.belongs_to_model([t])
            return self._memory.keep(t, t.detach())


_RANDOM_STATE = torch.Generator().get_state().shape


def _results_of(func: Any, result: Any) -> Sequence[Any]:
    if not isinstance(result, (tuple, list)):
        return (result,)
    # The workspace at the end has a value only where something is recorded.
    return result[:3] if func is _RNN else result


_RNN = torch.ops.aten.mkldnn_rnn_layer.default
_CAST = torch.ops.aten._to_copy.default
_CLONE = torch.ops.aten.clone.default
_RRELU = torch.ops.aten.rrelu_with_noise.default
_RRELU_TRAINS = 4
"""Position of its argument `training`."""


@dataclass(frozen=True, slots=True)
class _Operator:
    """Facts about an operator."""

    name: str
    makes: bool
    """Whether its results are values. A view is none, and what was not written yet has none."""
    draws: bool


_KNOWN: dict[Any, _Operator] = {}
"""The operators that were met."""


def _meet(func: Any) -> _Operator:
    name = func._schema.name
    makes = not (func.is_view or name.startswith("aten::empty"))
    # Fused attention has no dropout on a CPU.
    draws = torch.Tag.nondeterministic_seeded in func.tags and "attention" not in name
    _KNOWN[func] = _Operator(name, makes, draws)
    return _KNOWN[func]


class Draws:
    """Draws of layers, each execution as one."""

    def __init__(self, record: Record | None) -> None:
        self._record = record
        self._forwards: dict[tuple[int, int, int], list[tuple[int, str]]] = {}

    def add(self, place: Place, drawn: np.ndarray) -> None:
        place.draws.append((drawn.size, hash64(bits_of(drawn))))

    def note(self, place: Place) -> None:
        """An execution is over."""
        where = (place.step, place.microbatch, place.layer)
        draws = place.draws
        if place.execution == 0 and draws:
            self._forwards[where] = draws
        forward = self._forwards.get(where, [])
        # Early stop may end a layer between two draws: what it drew until then is to be the same.
        if place.kind == "custom" and not place.complete and draws == forward[: len(draws)]:
            draws = forward
        if draws and self._record is not None:
            elements = sum(size for size, _ in draws)
            hashed = draws[0][1] if len(draws) == 1 else hash64(repr(draws).encode())
            more = {"execution": place.execution, "stream": place.stream, **place.where}
            self._record.add("draws", elements=elements, hash=hashed, **more)


class Eye(Saves, Reader):
    """Sees masks, results of operators, saved tensors and what is held as well."""

    def __init__(self, record: Record, memory: Memory, checkpointed: bool, values: bool, policies: bool) -> None:
        """`values`: saved tensors and outputs are noted in
        a plain run, too. `policies`: some decide what is kept."""
        super().__init__(record, memory)
        self._results = checkpointed
        self._saves = values and not checkpointed
        self._operators = OperatorsOfEager(self)
        self._policies = policies
        self._shown = False
        """Whether every operator is shown, and not those of layers only."""
        self._index: dict[tuple[int, int, int], dict[tuple[str, int], int]] = {}
        self._kept: list[tuple[weakref.ref[Kept], dict[str, Any]]] = []
        self._draws = Draws(record)
        self._policy_check = PolicyCheck()
        self._unknown: set[int] = set()
        """Layers of which nobody knows which results a recomputation leaves out."""

    def enter(self, place: Place) -> Place | None:
        if not self._shown and self.place is None:
            self._operators.__enter__()
        place.entered = self._memory.held()
        return super().enter(place)

    def leave(self, outer: Place | None) -> None:
        if self.place is not None:
            place = self.place
            self.record.add("live", event="layer", execution=place.execution, **place.where)
            held = {"live": self._memory.held(), "execution": place.execution, "entered": place.entered}
            self.record.add("held", event="layer", **held, **place.where)
            self._draws.note(self.place)
            self._policy_check.note(self.place)
        super().leave(outer)
        if not self._shown and outer is None:
            self._operators.__exit__(None, None, None)

    def returned(self, operands: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        super().returned(operands, outputs)
        self._look_at_backward(outputs)
        if self._results or self._saves:
            with _unseen():
                place = self.place
                for index, output in enumerate(outputs):
                    self.record.append("values", self._entry(output, index, place.kind))
                # In a plain run, what the layer makes beside its outputs tells what it needs.
                others = {self._memory.name(t)[0] for t in (*operands, *outputs)}
                for entry in place.made:
                    if entry.get("memory", 0) not in others:
                        self.record.append("values", entry)

    def _look_at_backward(self, outputs: Sequence[Tensor]) -> None:
        """Notes what is held when the backward of this execution begins."""
        with _unseen():
            node = next((node for t in outputs if (node := t.grad_fn) is not None), None)
        place = self.place
        if node is None or place is None:
            return
        where = place.where
        node.register_prehook(lambda _: self.record.add("held", event="node", live=self._memory.held(), **where))

    @contextmanager
    def forward(self) -> Iterator[None]:
        with self._show_all(), super().forward():
            yield

    def backward(self) -> AbstractContextManager[Any]:
        # A policy's own mode answers for operators whose results it kept: it must come first.
        return self._show_all() if self._policies else nullcontext()

    def goes_by_operators(self, begin: int, end: int, hooks: bool) -> None:
        (self._unknown if hooks else self._policy_check.layers).update(range(begin, end))

    @contextmanager
    def _show_all(self) -> Iterator[None]:
        self._shown = True
        try:
            with self._operators:
                yield
        finally:
            self._shown = False

    def note_executions(self, counts: list[int], **place: Any) -> None:
        self.record.executions(counts, **place)

    def note_policies(self) -> None:
        if self._policy_check.layers:
            self.record.add("promises", name=POLICY, broken=self._policy_check.wrong)

    def note_bytes(self, moment: str, temporaries: int = 0, **place: Any) -> None:
        # Tensors that a layer saved for nothing that its output depends on are gone by now.
        for kept, entry in self._kept:
            if kept() is not None:
                self.record.append("values", entry)
        self._kept.clear()
        last = moment == "after_backward" and not place.get("retained")
        held = self._memory.held()
        if moment == "after_forward" or last:
            self.record.add("held", event=moment.removeprefix("after_"), live=held, **place)
        super().note_bytes(moment, self._memory.held(inputs=False) if last else 0, **place)

    def note_step(self, step: int) -> None:
        self.record.add("held", event="step", live=self._memory.held(), step=step)

    def after(self, op: Operator) -> None:
        place, func, args = self.place, op.func, op.args
        if place is None:
            return
        at = self._policy_check.ran(place, func)
        operator = _KNOWN.get(func) or _meet(func)
        if not operator.makes:
            return
        if func is _RRELU:
            # In evaluation nothing is drawn, and nothing written to the noise.
            if len(args) > _RRELU_TRAINS and args[_RRELU_TRAINS]:
                self._note_draw(args[1])
        elif operator.draws:
            self._note_draw(op.result)
        noted = (self._results or self._saves) and place.layer not in self._unknown
        for t in _results_of(func, op.result):
            if not isinstance(t, Tensor):
                continue
            # Whether autocast casts or finds a cast in its cache is no matter; nor is a copy, which autograd makes
            # where an operator in place saves its operand, and a reentrant forward does not.
            copies = func is _CAST or (func is _CLONE and self._results and place.kind == "custom")
            if not noted or copies:
                self._memory.name(t)
                continue
            entry = self._entry(t, self._index_of(place, operator.name, at), operator.name)
            if self._results:
                self.record.append("values", entry)
            else:
                place.made.append(entry)

    def _note_draw(self, result: Any) -> None:
        """`result`: what was drawn, or that of dropout and its mask."""
        place = self.place
        result = result if isinstance(result, Tensor) else result[1]
        self._draws.add(place, to_numpy(result))

    def _index_of(self, place: Place, op: str, at: int | None) -> int:
        """The number of the next result of `op`: that which it had in earlier executions of the
        layer, though a policy may keep results of other operators from being computed again. `at`:
        the place of the operator in the forward, where it is known."""
        op = op if at is None else f"{op}, {at}"
        run = place.runs[op] = place.runs.get(op, -1) + 1
        known = self._index.setdefault((place.step, place.microbatch, place.layer), {})
        return known.setdefault((op, run), OUTPUTS.get(place.kind, 1) + len(known))

    def _pack(self, t: Tensor) -> Kept:
        kept = super()._pack(t)
        place = self.place
        if self._saves and place is not None:
            with _unseen():
                entry = self._entry(t, place.saves, saved=True)
            self._kept.append((weakref.ref(kept), entry))
            place.saves += 1
        return kept

    def _entry(self, t: Tensor, index: int, op: str = "", saved: bool = False) -> dict[str, Any]:
        name, size = self._memory.name(t)
        place = self.place
        assert place is not None
        own = {"execution": place.execution, "memory": name, "bytes": size, **place.where}
        return entry_of("values", index=index, op=op, saved=saved, hash=hash64(bits_of(to_numpy(t))), **own)
