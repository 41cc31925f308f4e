"""A run in Keras on PyTorch that shows what its graphs keep, by PyTorch's hooks on saved tensors, and what is held."""

import gc
import weakref
from collections.abc import Callable
from typing import Any

from torch import Tensor

from rematch.frameworks.pytorch.memory import Kept, Memory
from rematch.frameworks.pytorch.watch import Saves
from rematch.journal.operators import Operator, Operators, Reader
from rematch.subjects.adapter_run import Run
from rematch.subjects.protocol import Request
from rematch.subjects.records import Record, entry_of


class _Results(Reader):
    """Names the memory of what operators make."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def after(self, op: Operator) -> None:
        for t in op.made():
            self._memory.name(t)


class LayerSaves(Saves):
    """Sees which layers save what as well, where `layer` says which one runs."""

    def __init__(self, record: Record, memory: Memory) -> None:
        super().__init__(record, memory)
        self.layer: int | None = None
        self.shows = False
        """Whether what layers save and return is noted."""
        self._kept: list[tuple[weakref.ref[Kept], dict[str, Any]]] = []

    def entry(self, t: Tensor, index: int, **rest: Any) -> dict[str, Any]:
        name, size = self._memory.name(t)
        assert self.layer is not None
        return entry_of("values", layer=self.layer, index=index, memory=name, bytes=size, **rest)

    def _pack(self, t: Tensor) -> Kept:
        kept = super()._pack(t)
        if self.shows and self.layer is not None:
            self._kept.append((weakref.ref(kept), self.entry(t, len(self._kept), saved=True)))
        return kept

    def note_layers(self) -> None:
        """Notes saved tensors that are still alive: layers also save for results that nothing uses."""
        for kept, entry in self._kept:
            if kept() is not None and self.record is not None:
                self.record.append("values", entry)
        self._kept.clear()


class TorchBackendRun(Run):
    """A run whose graphs are those of PyTorch."""

    notes_draws_at_once = True

    def __init__(self, framework: Any, request: Request, record: Record) -> None:
        super().__init__(framework, request, record)
        self.names["made"] = self._made
        self._memory = Memory()
        self._saves = LayerSaves(record, self._memory)
        self._saves.shows = request.layer_values and not request.checkpointed

    def _enter(self, layer: int) -> None:
        super()._enter(layer)
        self._saves.layer = layer

    def _made(self, layer: int, *outputs: Tensor) -> None:
        if self._saves.shows and self.framework.place is not None:
            for index, y in enumerate(outputs):
                self.record.append("values", self._saves.entry(y, index, op="made"))
        self._saves.layer = None

    def differentiated(
        self,
        differentiate: Callable[..., Any],
        objective: Any,
        arguments: list[Any],
        trained: list[int],
        own: list[Tensor],
    ) -> Any:
        """What `differentiate` makes of these, looked at. `own`: tensors of the model."""
        graph: list[Tensor] = []

        def observed(*arguments: Any) -> Any:
            self._saves.replaced(own)
            self._saves.starts(arguments[:1], objective.args[0])
            with self._saves.forward():
                loss, outputs = objective(*arguments)
            self._note("after_forward")
            self._saves.shows = False
            graph.append(loss)
            return loss, outputs

        with Operators(_Results(self._memory)):
            results = differentiate(observed, arguments, trained)
        # The loss is still there, and with it the graph: what that did not let go of counts.
        self._note("after_backward")
        return results

    def _note(self, moment: str) -> None:
        place = self.framework.place
        assert place is not None
        # Layers hang in cycles, and so does the exception that ends a recomputation, which Keras hands on.
        gc.collect()
        self._saves.note_layers()
        self._saves.note_bytes(moment, **place.where)
        self.record.add("held", event=moment.removeprefix("after_"), live=self._memory.held(), **place.where)

    def note_random_state(self, moment: str, **where: int) -> None:
        if moment == "after_step":
            gc.collect()
            self.record.add("held", event="step", live=self._memory.held(), **where)
        super().note_random_state(moment, **where)
