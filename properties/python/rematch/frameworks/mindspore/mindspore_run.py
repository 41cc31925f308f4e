"""A run in MindSpore that shows what its graphs save, by hooks on saved tensors."""

import gc
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import mindspore as ms
from mindspore.common.api import _pynative_executor

from rematch.subjects.adapter_run import Run
from rematch.subjects.description import Description
from rematch.subjects.protocol import Request
from rematch.subjects.records import Record

OBSERVED = frozenset({"saved_bytes", "saved_tensors"})


class Kept:
    """A saved tensor. A graph refers to it as long as it keeps the tensor."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor


def memory_of(t: Any) -> tuple[int, int]:
    """Returns the address of the tensor's storage, and the bytes of the whole storage."""
    storage = t.untyped_storage()
    return storage.data_ptr(), storage.size()


def flat(values: Iterable[Any]) -> list[Any]:
    return [part for v in values for part in (flat(v) if isinstance(v, (list, tuple)) else [v])]


class HookedRun(Run):
    """A run whose forwards save tensors under hooks."""

    def __init__(self, framework: Description, request: Request, record: Record) -> None:
        super().__init__(framework, request, record)
        self.names["made"] = self._made
        self._layer: int | None = None
        self._kept: list[tuple[weakref.ref[Kept], int | None]] = []
        """What the forward that runs has saved, and the layers that did."""
        self._shows = request.layer_values and not request.checkpointed

    def _enter(self, layer: int) -> None:
        super()._enter(layer)
        self._layer = layer

    def _made(self, layer: int, *outputs: Any) -> None:
        self._layer = None

    def _pack(self, t: Any) -> Kept:
        kept = Kept(t)
        self._kept.append((weakref.ref(kept), self._layer))
        return kept

    def looked(
        self, differentiate: Callable[..., Any], objective: Any, arguments: list[Any], trained: list[int]
    ) -> Any:
        """What `differentiate` makes of these, with a look at the graph after the forward."""

        def observed(*values: Any) -> Any:
            self._kept.clear()
            with ms.saved_tensors_hooks(self._pack, lambda kept: kept.tensor):
                loss, outputs = objective(*values)
            self._note([objective.args[0], values, [p for m in self.modules.values() for p in m.get_parameters()]])
            return loss, outputs

        return differentiate(observed, arguments, trained)

    def _note(self, own: list[Any]) -> None:
        place = self.framework.place
        assert place is not None
        _pynative_executor.sync()
        # Modules lie in cycles, and so may graphs.
        gc.collect()
        theirs = {memory_of(t)[0] for t in flat(own)}
        there = [(kept.tensor, layer) for kept, layer in ((r(), layer) for r, layer in self._kept) if kept is not None]
        saved: dict[int, int] = {}
        for t, layer in there:
            begin, size = memory_of(t)
            if size and begin not in theirs:
                saved[begin] = size
                if self._shows and layer is not None:
                    name = list(saved).index(begin) + 1
                    more = {"memory": name, "bytes": size, "saved": True}
                    self.record.add("values", layer=layer, index=len(saved), **more)
        self._shows = False
        self.record.add("bytes", moment="after_forward", saved=sum(saved.values()), **place.where)
