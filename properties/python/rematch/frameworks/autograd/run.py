"""A run in autograd that shows what its tape keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from autograd.core import VJPNode
from autograd.tracer import isbox

from rematch.frameworks.autograd.reached import Arrays, reached
from rematch.subjects.adapter_run import Run
from rematch.subjects.protocol import Request
from rematch.subjects.records import Record


def _nodes(roots: Iterable[VJPNode], known: set[int]) -> list[VJPNode]:
    """Nodes from these back to the first, but for those that are known; now they are, too."""
    found, todo = [], list(roots)
    while todo:
        node = todo.pop()
        if id(node) not in known:
            known.add(id(node))
            found.append(node)
            todo += node.parents
    return found


class AutogradRun(Run):
    """A tape is a chain of nodes; what they keep is what their functions close over."""

    def __init__(self, framework: Any, request: Request, record: Record) -> None:
        super().__init__(framework, request, record)
        self.names["made"] = self._made
        self._arrays = Arrays()
        self._layers: list[tuple[int, VJPNode]] = []
        """Nodes of the first plain forward, and the layers that made them."""
        self._known: set[int] = set()
        self._shows = request.layer_values and not request.checkpointed

    def _made(self, layer: int, *outputs: Any) -> None:
        if self._shows:
            nodes = _nodes((y._node for y in outputs if isbox(y)), self._known)
            self._layers += [(layer, node) for node in nodes]

    def note_tape(self, gradients_of: Callable[..., Any], arguments: list[Any]) -> None:
        """A forward is over, and its tape waits in `gradients_of`."""
        place = self.framework.place
        where = {"step": place.step, "microbatch": place.microbatch}
        self._arrays.let_in(arguments)
        tape = self._arrays.of_others(reached([gradients_of]))
        if self._shows:
            self._note_layers({id(array): at for at, array in enumerate(tape, 1)})
        self._shows = False
        saved = self._arrays.keep(tape)
        self.record.bytes("after_forward", saved=saved, **where)
        self.record.held("forward", saved, **where)

    def _note_layers(self, names: dict[int, int]) -> None:
        """Notes which layers keep what of the tape."""
        for index, (layer, node) in enumerate(self._layers):
            for array in reached([node.vjp], lambda part: isinstance(part, VJPNode)):
                if id(array) in names:
                    more = {"memory": names[id(array)], "size": array.nbytes}
                    self.record.value(layer, index, "0x0", saved=True, **more)
        self._layers.clear()
        self._known.clear()

    def backward(self, pending: Any) -> None:
        super().backward(pending)
        place = pending.place
        pending.outputs = pending.gradients = ()
        self.record.held("backward", self._arrays.left(), step=place.step, microbatch=place.microbatch)

    def note_random_state(self, moment: str, **where: int) -> None:
        if moment == "after_step":
            self.record.held("step", self._arrays.left(), **where)
        super().note_random_state(moment, **where)
