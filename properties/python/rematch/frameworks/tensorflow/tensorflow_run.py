"""Runs in TensorFlow op by op that show what their tapes keep."""

import gc
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import record
from tensorflow.python.framework import op_callbacks
from tensorflow.python.ops.gen_resource_variable_ops import read_variable_op

from rematch.frameworks.tensorflow import saved
from rematch.subjects.adapter_run import Run
from rematch.subjects.description import Description, Place
from rematch.subjects.protocol import Request
from rematch.subjects.records import Record

OF_FORWARDS = frozenset({"saved_bytes", "released_bytes", "held_bytes"})
"""What is observed where a forward is compiled."""
OBSERVED = OF_FORWARDS | {"saved_tensors", "held_layers"}


def _value_of(t: Any) -> Any:
    """A tensor of that memory. No tape records the read: a segment would take the variable for one that it made."""
    return read_variable_op(t.handle, t.dtype) if isinstance(t, tf.Variable) else t


class EagerRun(Run):
    """A run op by op."""

    notes_draws_at_once = True
    _frozen = False

    def __init__(self, framework: Description, request: Request, record: Record) -> None:
        super().__init__(framework, request, record)
        self.names["made"] = self._made
        self._first = saved.Forward() if request.layer_values and not request.checkpointed else None
        self._before: list[Any] = []
        """Tensors that no tape keeps."""
        self._refer: list[weakref.ref[Any]] = []
        """To those that tapes have kept, and to those that recomputations had."""
        self._results: list[weakref.ref[Any]] = []
        """To results of segments, which are kept for nothing: a promise (`only_inputs_kept`) judges that."""
        self._entered: int | None = None
        """What was held when the first layer of a segment began, while it runs."""
        self._waiting: list[list[Any]] = []
        """Inputs, targets and losses of forwards whose backward is not over."""
        case = request.case
        self._begins = {s.begin for s in case.plan.cut(len(case.layers))} if request.checkpointed else set()

    def begin(self) -> None:
        super().begin()
        gc.collect()
        self._before = saved.alive()
        if not EagerRun._frozen:
            # What TensorFlow has loaded need not be looked through again and again.
            gc.freeze()
            EagerRun._frozen = True

    def _enter(self, layer: int) -> None:
        super()._enter(layer)
        if self._first is not None:
            self._first.layer = layer
        if layer in self._begins:
            gc.collect()
            self._entered = self._size(self._left() if self._again(layer) else self._made_since())
        if self._again(layer):
            op_callbacks.add_op_callback(self._computed_again)

    def _again(self, layer: int) -> bool:
        place = self.framework.place
        return place is not None and place.executions[layer] > 1

    def _computed_again(
        self, name: str, inputs: Any, attrs: Any, outputs: Any, op_name: Any = None, graph: Any = None
    ) -> None:
        if graph is None:
            self._refer += [weakref.ref(t) for t in (*inputs, *outputs) if saved.counts(t)]

    def _made(self, layer: int, *outputs: Any) -> None:
        if self._first is not None:
            self._first.layer = None
        if self._again(layer):
            op_callbacks.remove_op_callback(self._computed_again)
        place = self.framework.place
        if self._entered is not None and place is not None:
            live = self._size(self._left() if self._again(layer) else self._made_since())
            more = {"layer": layer, "execution": place.executions[layer] - 1, "entered": self._entered}
            self.record.add("held", event="layer", live=live, **more, **place.where)
            self._entered = None

    def let_go(self) -> None:
        # A layer may have failed.
        op_callbacks.clear_op_callbacks()

    def _is_first(self) -> bool:
        """Whether the forward that runs, or is differentiated, is to show what layers save."""
        place = self.framework.place
        return self._first is not None and place is not None and place.step == place.microbatch == 0

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Surrounds a forward."""
        if self.request.checkpointed:
            with saved.custom_gradients(lambda g: self._results.extend(map(weakref.ref, saved.results_of(g)))):
                yield
        elif self._is_first():
            assert self._first is not None
            with self._first.seen():
                yield
        else:
            yield

    @contextmanager
    def differentiated(self) -> Iterator[None]:
        """A context in which a backward runs."""
        if not self._is_first():
            yield
            return
        assert self._first is not None
        with self._first.differentiated():
            yield
        self._first.note(self.record)
        self._first = None

    def starts(self, *own: Any) -> None:
        """A forward starts, of which these tensors are the run's."""
        self._waiting.append([*own])

    def ends(self, *made: Any) -> None:
        """The forward ends that started last. `made`: what the run has of it, the loss at the end."""
        self._waiting[-1] += made

    def forward(self, step: int, microbatch: int) -> Any:
        pending = super().forward(step, microbatch)
        pending.outputs = ()
        self.note_bytes("after_forward", pending.place)
        return pending

    def backward(self, pending: Any) -> None:
        super().backward(pending)
        self.note_bytes("after_backward", pending.place)
        self._waiting = [own for own in self._waiting if own[-1] is not pending.loss]

    def note_random_state(self, moment: str, **where: int) -> None:
        if moment == "after_step":
            gc.collect()
            self.record.add("held", event="step", live=self._size(self._left()), **where)
        super().note_random_state(moment, **where)

    def note_bytes(self, moment: str, place: Place, retained: bool = False) -> None:
        """Notes what tapes keep now."""
        gc.collect()
        if moment == "after_forward":
            tensors = self._made_since()
            self._refer = [weakref.ref(t) for t in tensors]
            if self._first is not None and self._is_first():
                self._first.over(self._kept(tensors), tensors)
        else:
            tensors = self._left()
        held = self._size(tensors)
        self.record.add("bytes", moment=moment, saved=held, retained=retained, **place.where)
        if not retained:
            self.record.add("held", event=moment.removeprefix("after_"), live=held, **place.where)
        if moment == "after_backward":
            kept = set(map(id, tensors))
            self._before = [t for t in saved.alive() if id(t) not in kept]

    def _made_since(self) -> list[Any]:
        """Tensors of a forward that are there."""
        known = {id(t) for t in self._before} | self._known_results()
        return [t for t in saved.alive() if id(t) not in known]

    def _left(self) -> list[Any]:
        known = self._known_results()
        return [t for t in (reference() for reference in self._refer) if t is not None and id(t) not in known]

    def _known_results(self) -> set[int]:
        self._results = [reference for reference in self._results if reference() is not None]
        return {id(reference()) for reference in self._results}

    def _size(self, tensors: Sequence[Any]) -> int:
        return sum(end - begin for begin, end in self._kept(tensors))

    def _kept(self, tensors: Sequence[Any]) -> list[tuple[int, int]]:
        """Memory of these that is neither the model's nor the run's."""
        with record.stop_recording():
            others = saved.united(
                saved.memory_of(_value_of(t)) for t in tf.nest.flatten([self._waiting, self.of_model()])
            )
        return [part for part in saved.united(map(saved.memory_of, tensors)) if not saved.overlaps(part, others)]

    def of_model(self) -> list[Any]:
        """Parameters, and variables of modules, those that train and others."""
        return [self.parameters, [list(m.variables) for m in self.modules.values()]]


class OneCallRun(EagerRun):
    """A run whose forward and backward are one call."""

    forward, backward = Run.forward, Run.backward
    _own: Sequence[Any] = ()

    def both(
        self, place: Place, differentiate: Callable[..., Any], objective: Any, arguments: list[Any], trained: list[int],
        own: Sequence[Any],
    ) -> Any:  # fmt: skip
        """What `differentiate` makes of these, looked at. `own`: tensors of the model."""
        self._own = own
        self.starts(objective.args[0], arguments[0])

        def observed(*arguments: Any) -> Any:
            with self.watched():
                loss, outputs = objective(*arguments)
            self.ends(*saved.attached(outputs), loss)
            self.note_bytes("after_forward", place)
            return loss, outputs

        with self.differentiated():
            results = differentiate(observed, arguments, trained)
        self.note_bytes("after_backward", place)
        self._waiting.clear()
        return results

    def of_model(self) -> list[Any]:
        return list(self._own)


class TracedRun(OneCallRun):
    """A run whose forward is compiled: what its layers do is not seen."""

    notes_draws_at_once = False
    _enter = Run._enter
