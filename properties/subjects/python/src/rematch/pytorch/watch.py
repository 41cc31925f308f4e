"""Looking at a run from outside: nothing of PyTorch is patched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode

from rematch.arrays import bits_of
from rematch.pytorch.layers import OUTPUTS
from rematch.pytorch.memory import Kept, Memory
from rematch.record import Record, hash64, value_entry


def to_numpy(t: Tensor) -> np.ndarray:
    """The elements of a tensor; those of bfloat16 as 16-bit integers with the same bits."""
    if t.dtype == torch.bfloat16:
        t = t.detach().view(torch.int16)
    return t.numpy(force=True)


@dataclass(slots=True)
class Place:
    """An execution of a layer. Execution 0 is the forward, 1 and above are recomputations."""

    layer: int
    kind: str
    execution: int
    step: int
    microbatch: int
    stream: int = 0
    saves: int = 0
    runs: dict[str, int] = field(default_factory=dict)
    """How often each operator has run."""
    made: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    """Results of operators, by the name of their memory, that are noted when the layer returns."""


class Watch:
    """Sees the layers run, and which of their outputs require grad."""

    def __init__(self, record: Record | None = None) -> None:
        self.record = record
        self.place: Place | None = None
        self._input: Tensor | None = None

    def enter(self, place: Place) -> Place | None:
        """A layer begins. What is returned is given to leave()."""
        outer, self.place = self.place, place
        return outer

    def returned(self, operands: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        """The layer has returned what it made of `operands`."""
        place = self.place
        if self.record is None or place is None or place.execution != 0:
            return
        for k, output in enumerate(outputs):
            flag = output.requires_grad
            if flag and not torch.is_grad_enabled():
                # A view that was made without recording reports the flag of its base, but has no
                # history.
                flag = output.grad_fn is not None or output is self._input
            self.record.grad_flag(
                place.layer, k, flag, step=place.step, microbatch=place.microbatch
            )

    def leave(self, outer: Place | None) -> None:
        """The layer is over, perhaps because early stop or an error ended it."""
        self.place = outer

    def starts(self, input: Tensor, target: Tensor) -> None:
        """A forward begins, on these."""
        self._input = input

    def forward(self) -> AbstractContextManager[Any]:
        """Surrounds a forward and its loss."""
        return nullcontext()

    def model(self, offload: bool) -> AbstractContextManager[Any]:
        """Surrounds the model, within a forward. `offload`: what is saved waits on the host."""
        return save_on_cpu() if offload else nullcontext()

    def backward(self) -> AbstractContextManager[Any]:
        """Surrounds a backward."""
        return nullcontext()

    def note_executions(self, counts: list[int], **place: Any) -> None:
        """Notes how often each layer ran for a forward."""

    def note_bytes(self, moment: str, **place: Any) -> None:
        """Notes what is live now."""


class _Operators(TorchDispatchMode):
    """Shows every operator that runs to an Eye, on its way below autograd."""

    def __init__(self, eye: Eye) -> None:
        super().__init__()
        self._eye = eye

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Nothing is compiled here, and what guards against that is slow.
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **kwargs) if kwargs else func(*args)
        if self._eye.place is not None:
            self._eye.saw(func, args, result)
        return result


_CAST = torch.ops.aten._to_copy.default
_RRELU = torch.ops.aten.rrelu_with_noise.default


@dataclass(frozen=True, slots=True)
class _Operator:
    """What is to be known of an operator."""

    name: str
    makes: bool
    """Whether its results are values. A view is none, and what was not written yet has none."""
    draws: bool


_unseen = torch._C._DisableTorchDispatch
"""A scope: what the eye itself does to tensors is not to be seen."""

_KNOWN: dict[Any, _Operator] = {}
"""The operators that were met."""


def _meet(func: Any) -> _Operator:
    name = func._schema.name
    makes = not (func.is_view or name.startswith("aten::empty"))
    _KNOWN[func] = _Operator(name, makes, torch.Tag.nondeterministic_seeded in func.tags)
    return _KNOWN[func]


class Eye(Watch):
    """Sees masks, results of operators, saved tensors and bytes as well."""

    def __init__(
        self, record: Record, memory: Memory, checkpointed: bool, values: bool, policies: bool
    ) -> None:
        """`memory` knows the model's own memory. `values`: saved tensors and outputs are noted in
        a plain run, too. `policies`: some decide what is kept."""
        super().__init__(record)
        self._memory = memory
        self._results = checkpointed
        self._saves = values and not checkpointed
        self._operators = _Operators(self)
        self._policies = policies
        self._shown = False
        """Whether every operator is shown, and not those of layers only."""
        self._index: dict[tuple[int, int, int], dict[tuple[str, int], int]] = {}

    def starts(self, input: Tensor, target: Tensor) -> None:
        super().starts(input, target)
        self._memory.belongs_to_model([input, target])

    def enter(self, place: Place) -> Place | None:
        if not self._shown and self.place is None:
            self._operators.__enter__()
        return super().enter(place)

    def leave(self, outer: Place | None) -> None:
        super().leave(outer)
        if not self._shown and outer is None:
            self._operators.__exit__(None, None, None)

    def returned(self, operands: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        super().returned(operands, outputs)
        if self._results or self._saves:
            with _unseen():
                place = self.place
                for index, output in enumerate(outputs):
                    self._note(output, index, place.kind)
                # In a plain run, what the layer makes beside its outputs tells what it needs.
                others = {self._memory.name(t)[0] for t in (*operands, *outputs)}
                for entry in place.made:
                    if entry.get("memory", 0) not in others:
                        self.record.append_value(entry)

    @contextmanager
    def forward(self) -> Iterator[None]:
        with self._show_all(), saved_tensors_hooks(self._pack, Kept.unpack):
            yield

    def model(self, offload: bool) -> AbstractContextManager[Any]:
        if not offload:
            return nullcontext()
        hooks = save_on_cpu()

        def pack(t: Tensor) -> Kept:
            return self._memory.keep(t, hooks.pack_hook(t), offloaded=True)

        def unpack(kept: Kept) -> Tensor:
            return hooks.unpack_hook(kept.value)

        return saved_tensors_hooks(pack, unpack)

    def backward(self) -> AbstractContextManager[Any]:
        # A policy's own mode answers for operators whose results it kept: it must come first.
        return self._show_all() if self._policies else nullcontext()

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

    def note_bytes(self, moment: str, **place: Any) -> None:
        memory = self._memory
        temporaries = memory.temporaries() if moment == "after_backward" else 0
        if place.get("retained"):
            temporaries = 0
        self.record.bytes(
            moment,
            saved=memory.saved(),
            offloaded=memory.saved(offloaded=True),
            temporaries=temporaries,
            **place,
        )

    def saw(self, func: Any, args: Any, result: Any) -> None:
        """An operator has run within a layer."""
        operator = _KNOWN.get(func) or _meet(func)
        if not operator.makes:
            return
        if operator.draws:
            self._note_draw(args[1] if func is _RRELU else result)
        noted = self._results or self._saves
        for t in (result,) if isinstance(result, Tensor) else result:
            if not isinstance(t, Tensor):
                continue
            # Whether autocast casts or finds a cast in its cache is no matter.
            if not noted or func is _CAST:
                self._memory.name(t)
                continue
            place = self.place
            entry = self._entry(t, self._index_of(place, operator.name), operator.name)
            if self._results:
                self.record.append_value(entry)
            else:
                place.made.append(entry)

    def _note_draw(self, result: Any) -> None:
        """`result`: what was drawn, or that of dropout and its mask."""
        place = self.place
        self.record.draw(
            place.layer,
            to_numpy(result if isinstance(result, Tensor) else result[1]),
            execution=place.execution,
            stream=place.stream,
            step=place.step,
            microbatch=place.microbatch,
        )

    def _index_of(self, place: Place, op: str) -> int:
        """The number of the next result of `op`: that which it had in earlier executions of the
        layer, though a policy may keep results of other operators from being computed again."""
        run = place.runs[op] = place.runs.get(op, -1) + 1
        known = self._index.setdefault((place.step, place.microbatch, place.layer), {})
        return known.setdefault((op, run), OUTPUTS.get(place.kind, 1) + len(known))

    def _pack(self, t: Tensor) -> Kept:
        if self._saves and self.place is not None:
            with _unseen():
                self._note(t, self.place.saves, saved=True)
            self.place.saves += 1
        return self._memory.keep(t, t)

    def _note(self, t: Tensor, index: int, op: str = "", saved: bool = False) -> None:
        self.record.append_value(self._entry(t, index, op, saved))

    def _entry(self, t: Tensor, index: int, op: str = "", saved: bool = False) -> dict[str, Any]:
        name, size = self._memory.name(t)
        place = self.place
        assert place is not None
        return value_entry(
            place.layer,
            index,
            hash64(bits_of(to_numpy(t))),
            op=op,
            saved=saved,
            memory=name,
            size=size,
            execution=place.execution,
            step=place.step,
            microbatch=place.microbatch,
        )
