"""Bytes that tapes in TensorFlow keep, and the layers whose backwards use them.

What a tape keeps are tensors, and Python's collector knows every one of them: those that are alive when a forward is
over and nothing else holds them any more. The memory of parameters, inputs, targets and losses does not count,
nor do integers, shapes among them, which TensorFlow keeps for later. A backward may leave other tensors: the gradient
that both operands of an addition get is never freed, with or without checkpoints.
"""

import gc
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import backprop, record
from tensorflow.python.framework import op_callbacks
from tensorflow.python.framework.ops import EagerTensor

from rematch.subjects.records import Record


def counts(t: Any) -> bool:
    """A number without a shape does not: constants may be made for the first run, and stay for the others."""
    return (t.dtype.is_floating or t.dtype.is_bool) and t.ndim > 0


def alive() -> list[Any]:
    """All tensors that Python knows."""
    return [t for t in gc.get_objects() if type(t) is EagerTensor and counts(t)]


def memory_of(t: Any) -> tuple[int, int]:
    """Where its memory begins and ends; two tensors may share theirs."""
    seen = t._numpy()
    begin = seen.__array_interface__["data"][0]
    return begin, begin + seen.nbytes


def united(parts: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Pieces of memory, those that overlap as one."""
    found: list[tuple[int, int]] = []
    for begin, end in sorted(parts):
        if found and begin < found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        elif begin < end:
            found.append((begin, end))
    return found


def overlaps(part: tuple[int, int], others: Iterable[tuple[int, int]]) -> bool:
    return any(part[0] < end and begin < part[1] for begin, end in others)


@contextmanager
def custom_gradients(called: Callable[[Any], Any]) -> Iterator[None]:
    """A scope in which `called` is told of functions that tapes get as gradients."""
    record_operation = record.record_operation

    def recorded(
        op_type: str, output_tensors: Any, input_tensors: Any, backward_function: Any, forward_function: Any = None
    ) -> Any:
        called(backward_function)
        return record_operation(op_type, output_tensors, input_tensors, backward_function, forward_function)

    record.record_operation = recorded
    try:
        yield
    finally:
        record.record_operation = record_operation


def attached(values: Iterable[Any]) -> list[Any]:
    """The tensors among the values, and those that are their attributes. Keras attaches logits to probabilities."""
    found = [t for t in values if isinstance(t, EagerTensor)]
    return found + [more for t in found for more in attached(vars(t).values())]


def results_of(gradient: Any) -> list[Any]:
    """What the gradient of tf.recompute_grad() closes over as the results of its segment, which no gradient needs. They
    are objects apart: a segment returns copies that share their memory."""
    if not isinstance(gradient, FunctionType):
        return []
    closes_over = dict(zip(gradient.__code__.co_freevars, gradient.__closure__ or (), strict=True))
    wrapped = closes_over.get("grad_fn")
    if wrapped is None or not wrapped.cell_contents.__qualname__.startswith("recompute_grad."):
        return []
    return attached(tf.nest.flatten(closes_over["result"].cell_contents))


@dataclass
class Operation:
    """An operation of a forward: the layer that ran it, and references to its tensors."""

    layer: int | None
    name: str
    inputs: Sequence[weakref.ref[Any]]
    outputs: Sequence[weakref.ref[Any]]

    def may_be(self, name: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
        """Whether it is the one of that name whose gradient needs these. None: a tensor that is not needed."""
        return self.name == name and _fits(inputs, self.inputs) and _fits(outputs, self.outputs)


def _fits(needed: Sequence[Any], all_of_them: Sequence[weakref.ref[Any]]) -> bool:
    return all(t is None or (at < len(all_of_them) and t is all_of_them[at]()) for at, t in enumerate(needed))


@dataclass
class Forward:
    """What is known of the first forward of a plain run."""

    layer: int | None = None
    operations: list[Operation] = field(default_factory=list)
    opaque: set[int | None] = field(default_factory=set)
    """Layers with gradients of their own, which may keep any tensor that they had."""
    kept: list[tuple[int, int]] = field(default_factory=list)
    """Memory that the tape keeps."""
    users: dict[int, set[int | None]] = field(default_factory=dict)
    """Layers whose backwards use it, by its place in `kept`; None: unknown."""

    @contextmanager
    def seen(self) -> Iterator[None]:
        """A scope in which operations are noted."""
        op_callbacks.add_op_callback(self._ran)
        try:
            with custom_gradients(lambda _: self.opaque.add(self.layer)):
                yield
        finally:
            op_callbacks.remove_op_callback(self._ran)

    def _ran(self, name: str, inputs: Any, attrs: Any, outputs: Any, op_name: Any = None, graph: Any = None) -> None:
        if graph is None:
            operation = Operation(self.layer, name, [weakref.ref(t) for t in inputs], [weakref.ref(t) for t in outputs])
            self.operations.append(operation)

    def over(self, kept: list[tuple[int, int]], tensors: Sequence[Any]) -> None:
        """The forward is over, and its tape keeps that memory, by these tensors."""
        self.kept = kept
        there = {id(t) for t in tensors}
        for operation in self.operations:
            if operation.layer in self.opaque:
                had = [reference() for reference in (*operation.inputs, *operation.outputs)]
                self._use([t for t in had if id(t) in there], {operation.layer})

    @contextmanager
    def differentiated(self) -> Iterator[None]:
        """A scope in which gradients tell which tensors they need."""

        def gradient(name: str, attrs: Any, count: int, inputs: Any, outputs: Any, *rest: Any) -> Any:
            inputs, outputs = inputs or [], outputs or []
            layers = {o.layer for o in self.operations if o.may_be(name, inputs, outputs)}
            self._use([*inputs, *outputs], layers or {None})
            return backprop._gradient_function(name, attrs, count, inputs, outputs, *rest)

        pywrap_tfe.TFE_Py_RegisterGradientFunction(gradient)
        try:
            yield
        finally:
            pywrap_tfe.TFE_Py_RegisterGradientFunction(backprop._gradient_function)

    def _use(self, tensors: Iterable[Any], layers: set[int | None]) -> None:
        for t in tensors:
            if t is None or not counts(t):
                continue
            begin, end = memory_of(t)
            for at, (first, last) in enumerate(self.kept):
                if begin < last and first < end:
                    self.users.setdefault(at, set()).update(layers)

    def note(self, record: Record) -> None:
        """Notes what layers save, but no memory that has an unknown user. The order is the same in every run."""
        sizes = [end - begin for begin, end in self.kept]
        known = [
            (sorted(layer for layer in layers if layer is not None), sizes[at])
            for at, layers in self.users.items()
            if None not in layers
        ]
        for name, (layers, size) in enumerate(sorted(known), 1):
            for layer in layers:
                record.add("values", layer=layer, index=name, saved=True, memory=name, bytes=size)
