"""Bytes that forwards in JAX save for their backwards, and the layers whose backwards use them.

What a forward saves are the arrays from which the function of jax.vjp() computes gradients; in a compiled step, the
values of the forward that its backward uses. What the caller holds anyway (parameters, inputs, targets, keys) does not
count, nor do counters of random generators, which are integers without a shape.
"""

import gc
import re
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Var

from rematch.subjects.adapter_run import Run
from rematch.subjects.description import Description, Place
from rematch.subjects.protocol import Request
from rematch.subjects.records import Record

OF_STEPS = frozenset({"saved_bytes", "saved_tensors"})
"""Observables of compiled steps."""
OF_ARRAYS = OF_STEPS | {"released_bytes"}
"""Observables of what runs op by op."""

_LAYER = re.compile(r"rematch_layer_(\d+)")
_CALLS = {"jit", "pjit", "remat", "remat2", "checkpoint", "closed_call", "custom_jvp_call", "custom_vjp_call"}
"""Primitives that run a function once, and return as it is what that returns of its arguments."""


def within(layer: int, compute: Callable[[], Any]) -> Any:
    """Computes a layer. Its operations, and those of its backward, are named after it."""
    with jax.named_scope(f"rematch_layer_{layer}"):
        return compute()


@dataclass
class Saved:
    """What one forward saves. Memory has names that count from 1."""

    sizes: list[int] = field(default_factory=list)
    """Bytes of each piece of memory."""
    users: list[set[int | None]] = field(default_factory=list)
    """Layers whose backwards use it; None: what belongs to no layer, as the loss."""
    made: list[tuple[int, int]] = field(default_factory=list)
    """Layers, each with the bytes of an operation of its forward."""

    def note(self, record: Record, place: Place) -> None:
        record.add("bytes", moment="after_forward", saved=sum(self.sizes), **place.where)

    def note_layers(self, record: Record) -> None:
        """Notes what each layer makes, and what it saves, unless something outside of the layers uses that, too."""
        name = 0
        for name, (size, users) in enumerate(zip(self.sizes, self.users, strict=True), 1):
            for layer in users:
                if layer is not None and None not in users:
                    record.add("values", layer=layer, saved=True, memory=name, bytes=size)
        for name, (layer, size) in enumerate(self.made, name + 1):
            record.add("values", layer=layer, op="forward", memory=name, bytes=size)


WITHIN = "within({layer}, lambda: {expression})"
"""How sources call it."""


def layer_of(equation: Any) -> int | None:
    found = _LAYER.search(str(equation.source_info.name_stack))
    return int(found[1]) if found else None


def size_of(a: Any) -> int:
    """Bytes of an array, or of one that an abstract value stands for."""
    dtype = getattr(a, "dtype", None)
    if dtype is None or jnp.issubdtype(dtype, jax.dtypes.extended):
        return 0
    counts = a.shape or jnp.issubdtype(dtype, jnp.inexact)
    return int(a.size * dtype.itemsize) if counts else 0


def _inner(equation: Any) -> Iterator[Any]:
    for value in equation.params.values():
        for part in value if isinstance(value, (tuple, list)) else [value]:
            inner = getattr(part, "jaxpr", part)
            if hasattr(inner, "eqns"):
                yield inner


def _made(equation: Any) -> int:
    """Bytes of all that an equation computes, inside as well."""
    times = equation.params["length"] if equation.primitive.name == "scan" else 1
    inside = sum(_made(e) for inner in _inner(equation) for e in inner.eqns)
    return times * inside + sum(size_of(v.aval) for v in equation.outvars)


def made(jaxpr: Any) -> list[tuple[int, int]]:
    """Layers, each with the bytes of an equation of its forward."""
    forward = [(layer_of(e), _made(e)) for e in jaxpr.eqns if not _is_backward(e)]
    return [(layer, size) for layer, size in forward if layer is not None]


def _is_backward(equation: Any) -> bool:
    return "transpose(" in str(equation.source_info.name_stack)


def _handed_on(equation: Any, known: dict[Any, Any]) -> Iterator[tuple[Any, Any]]:
    """Results of a call that are its arguments, or other results. `known`: such of the equations before."""
    if equation.primitive.name not in _CALLS:
        return
    inner = next(_inner(equation), None)
    if inner is None or len(inner.invars) != len(equation.invars):
        return
    inside: dict[Any, Any] = {}
    for e in inner.eqns:
        inside.update(_handed_on(e, inside))
    outside = dict(zip(inner.invars, equation.invars, strict=True))
    for result, value in zip(equation.outvars, inner.outvars, strict=True):
        if not isinstance(value, Var):
            continue
        value = inside.get(value, value)
        same = outside.setdefault(value, result)
        if same is not result:
            yield result, known.get(same, same) if isinstance(same, Var) else same


def of_step(jaxpr: Any) -> Saved:
    """What the forward of a traced step saves for the backward behind it."""
    same: dict[Any, Any] = {}
    computed: set[Any] = set()
    found: dict[Any, set[int | None]] = {}
    for equation in jaxpr.eqns:
        if not _is_backward(equation):
            computed.update(equation.outvars)
            same.update(_handed_on(equation, same))
            continue
        for value in equation.invars:
            if isinstance(value, Var):
                value = same.get(value, value)
                if isinstance(value, Var) and value in computed:
                    found.setdefault(value, set()).add(layer_of(equation))
    kept = {value: users for value, users in found.items() if size_of(value.aval)}
    return Saved([size_of(value.aval) for value in kept], list(kept.values()), made(jaxpr))


class Step:
    """A compiled step that tells what its forward saves."""

    def __init__(self, jitted: Any) -> None:
        self._jitted, self._saved = jitted, dict[str, Saved]()

    def __call__(self, run: Run, *arguments: Any) -> Any:
        # Models of the same layers share a step, whatever their sizes.
        sizes = repr([getattr(a, "shape", ()) for a in jax.tree.leaves((run.values, arguments))])
        if sizes not in self._saved:
            # What was traced is compiled by the call below.
            traced = self._jitted.trace(*arguments)
            # nnx.jit() has the one of jax.jit() within.
            self._saved[sizes] = of_step(getattr(traced, "traced", traced).jaxpr.jaxpr)
        found, place = self._jitted(*arguments), run.framework.place
        assert place is not None
        self._saved[sizes].note(run.record, place)
        if run.request.layer_values and place.step == place.microbatch == 0:
            self._saved[sizes].note_layers(run.record)
        return found


def _named(arrays: Any) -> dict[int, Any]:
    """Arrays by their memory."""
    arrays = [a for a in jax.tree.leaves(arrays) if isinstance(a, jax.Array) and size_of(a)]
    return {a.unsafe_buffer_pointer(): a for a in arrays}


class Eager(Run):
    """A run op by op: it looks at the arrays that the functions of jax.vjp() refer to, while they are alive."""

    def __init__(self, framework: Description, request: Request, record: Record) -> None:
        super().__init__(framework, request, record)
        self._arrays: list[tuple[weakref.ref[Any], int, int]] = []

    def after_forward(self, place: Place, loss: Any, pull: Any, held: Any, whole: Any = None) -> None:
        """`pull`: the function of jax.vjp(), of the loss; `held`: arrays that the caller holds; `whole()`: the
        jaxpr of the forward, where it is to be known what layers make."""
        around = _named(held)
        saved = {at: a for at, a in _named(pull).items() if at not in around}
        self._arrays += [(weakref.ref(a), at, size_of(a)) for at, a in saved.items()]
        self._note("after_forward", place, around)
        if self.request.layer_values and place.step == place.microbatch == 0:
            users, making = _users(pull, loss), made(whole()) if whole else []
            sizes = [size_of(a) for a in saved.values()]
            Saved(sizes, [users.get(at, {None}) for at in saved], making).note_layers(self.record)

    def after_backward(self, place: Place, held: Any) -> None:
        """Takes place when nothing refers to the function of jax.vjp(). `held`: as above, results included."""
        around = _named(held)
        if self._alive(around):
            # It may be part of a cycle.
            gc.collect()
        self._note("after_backward", place, around)

    def _alive(self, around: Any) -> int:
        alive = {at: size for reference, at, size in self._arrays if reference() is not None}
        return sum(size for at, size in alive.items() if at not in around)

    def _note(self, moment: str, place: Place, around: Any) -> None:
        self.record.add("bytes", moment=moment, saved=self._alive(around), **place.where)


def _users(pull: Any, loss: Any) -> dict[int, set[int | None]]:
    """Layers whose backwards use an array, by its memory."""
    backward = jax.make_jaxpr(pull)(jnp.ones_like(loss))
    names = {
        variable: array.unsafe_buffer_pointer()
        for variable, array in zip(backward.jaxpr.constvars, backward.consts, strict=True)
        if isinstance(array, jax.Array) and size_of(array)
    }
    users: dict[int, set[int | None]] = {}
    for equation in backward.jaxpr.eqns:
        for value in equation.invars:
            if isinstance(value, Var) and value in names:
                users.setdefault(names[value], set()).add(layer_of(equation))
    return users
