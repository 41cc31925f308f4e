"""Frameworks with a tape, whose tensors have gradients as attributes: what they accumulate
themselves is judged, retained graphs, hooks, absent gradients and injected failures included."""

import gc
import re
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np

from rematch.subjects.case import PROMISE, Parameter
from rematch.subjects.framework import COMMON, SEEN, Framework, Pending, Place, Run
from rematch.subjects.protocol import Request
from rematch.subjects.records import Record, entry_of, hash64
from rematch.subjects.source import parameter_names
from rematch.subjects.steps import TrialError


class Kept:
    """Memory of a saved tensor, which its graph keeps; letting go of `value` frees it."""

    def __init__(self, value: Any, version: int, trained: bool) -> None:
        self.value, self.version, self.trained = value, version, trained


class Tape(Framework):
    """Derive from it, and define what raises NotImplementedError. Of the helpers, differentiate()
    takes how many backwards there are, and `clear(tensors, prior)` is for scripts: it sets the
    gradients to None, or to ones."""

    closes_over_parameters = True
    made_line = "made({layer}, {outputs})"
    detach = "{x}.detach()"
    sees_draws = True
    features = COMMON | {
        *("reentrant", "mixed_variants", "frozen_first_block", "preserve_rng_off", "fresh_draws"),
        *("forwards_first", "prior_gradients", "gradients_kept", "retain_graph"),
        *("injected_failure", "failure_in_segment"),
    }
    observed = SEEN | {
        *("absent_gradients", "grad_flags", "rng_state", "recomputed_values", "executions"),
        *("hooks", "saved_tensors", "saved_bytes", "held_bytes", "injected_failures"),
    }

    def __init__(self) -> None:
        super().__init__()
        self.run_type = TapeRun
        self.cycles = True
        """Memory may be in use that nobody has any more."""

    def script_lines(self, request: Request) -> Sequence[str]:
        names = parameter_names(request.case, request.model)
        infos = request.model.parameters
        trained = [n for n, info in zip(names, infos, strict=True) if not info.frozen]
        prior = request.case.protocol.prior_gradients
        lines = [f"clear([{', '.join(trained)}], {prior})"] if trained else []
        return [*super().script_lines(request), "clear([x], False)", *lines]

    def leaf(self, a: np.ndarray, trained: bool) -> Any:
        """Makes a tensor of `a`. If it is `trained`, it has a gradient after a backward."""
        raise NotImplementedError

    def set_trained(self, t: Any, trained: bool) -> None:
        raise NotImplementedError

    def hook(self, t: Any, called: Callable[[Any], None]) -> None:
        """Calls `called` with the gradient of the leaf `t`, whenever it gets one."""
        raise NotImplementedError

    def gradient(self, t: Any) -> Any:
        """None where it is absent."""
        raise NotImplementedError

    def set_gradient(self, t: Any, a: np.ndarray | None) -> None:
        raise NotImplementedError

    def write(self, t: Any, a: np.ndarray) -> None:
        """Between steps, when no graph is left."""
        raise NotImplementedError

    def spoil(self, t: Any) -> None:
        """Changes a tensor in place, while a graph may still need it."""
        raise NotImplementedError

    def memory(self, t: Any) -> int:
        """An address; tensors that share it have the same."""
        raise NotImplementedError

    def size(self, t: Any) -> int:
        """Bytes of that memory, all of it."""
        raise NotImplementedError

    def saving(self, called: Callable[[Any, Kept], None]) -> AbstractContextManager[Any]:
        """A scope in which `called` is told of every tensor that is saved for the backward, and of what
        keeps it as long as the graph does."""
        raise NotImplementedError

    def live(self) -> int:
        """Bytes of all memory in use, by the framework's own count."""
        raise NotImplementedError

    def propagate(self, loss: Any, retain: bool) -> None:
        raise NotImplementedError

    def stream_state(self, stream: int) -> bytes:
        raise NotImplementedError

    def put_back(self) -> str:
        """Sets settings as a run finds them, and names those that were not so."""
        raise NotImplementedError

    def forward(self, run: Run, x: np.ndarray, target: np.ndarray, place: Place) -> Pending:
        given = self.leaf(x, run.request.case.protocol.input_requires_grad)
        assert isinstance(run, TapeRun)
        with run.watched(given):
            outputs = run.model(given)
        return Pending(place, outputs, run.loss(outputs[0], self.array(target)), given)

    def backward(self, run: Run, pending: Pending) -> Any:
        assert isinstance(run, TapeRun)
        backwards = run.request.case.protocol.backwards
        if self.requires_grad(pending.loss):
            for left in range(backwards - 1, -1, -1):
                self.propagate(pending.loss, retain=left > 0)
                if left > 0:
                    run.note_bytes("after_backward", pending.place, retained=True)
        return self.gradient(pending.input)


class TapeRun(Run):
    """A run whose parameters are the same tensors from beginning to end."""

    framework: Tape
    notes_draws_at_once = True

    def __init__(self, framework: Tape, request: Request, record: Record) -> None:
        super().__init__(framework, request, record)
        self.names |= {"made": self._made, "exchanged": self._exchanged}
        self._entered = -1
        self._saves = -1
        self._states = {int(name[1:]): list(self.names["state_of"](m)) for name, m in self.modules.items()}
        self._seen: dict[int, tuple[int, Any]] = {}
        """Memory that tensors lie in: its number, and what keeps it from being used again."""
        self._kept: list[tuple[weakref.ref[Kept], dict[str, Any]]] = []
        self._waiting: list[Pending] = []
        """Forwards whose backward is not over."""
        self._base = 0
        """Bytes in use that are no forward's."""
        train = request.case.protocol.train
        self._drawing = {
            at
            for at, layer in enumerate(request.case.layers)
            if layer.trains(train) and re.search(r"draws(?! elsewhere)", layer.layer)
        }
        self._streams = range(1 + max((layer.stream for layer in request.case.layers), default=0))
        self._tensors = [
            list(parts) if whole else [parts] for parts, whole in zip(self.parameters, self.is_module, strict=True)
        ]
        self._fired: list[Counter[int]] = [Counter() for _ in self._tensors]
        for index, info in enumerate(request.model.parameters):
            self.names[self.parameter_names[index]] = self.parameters[index]
            # Parameters of the library's layers cannot be exchanged.
            constant = self.is_module[index] and info.layer in request.detached_layers
            for at, tensor in enumerate(self._tensors[index]):
                framework.set_trained(tensor, not info.frozen and not constant)
                if not info.frozen and not constant:
                    framework.hook(tensor, lambda _, fired=self._fired[index], at=at: fired.update([at]))
        self._clear()

    @contextmanager
    def watched(self, given: Any) -> Iterator[None]:
        """The first forward of a plain run shows what layers save."""
        place = self.framework.place
        first = place is not None and place.step == place.microbatch == 0 and not self.trial
        if not (self.request.layer_values and first):
            yield
            return
        own = [given, *(t for tensors in self._tensors for t in tensors)]
        own += [t for state in self._states.values() for t in state]
        own += [self.names[f"{b.role}{b.layer}"] for b in self._own_buffers()]
        self._seen = {self.framework.memory(t): (0, t) for t in own}
        with self.framework.saving(self._saved):
            yield
        self._seen = {}

    def collect(self) -> None:
        """Takes the gradients as they have accumulated."""
        for index, tensors in enumerate(self._tensors):
            found = [self.framework.gradient(t) for t in tensors]
            if all(g is None for g in found):
                self.gradients[index] = None
                continue
            # A reentrant segment's unused output brings zeros, which change the sign of others.
            self.gradients[index] = [
                np.full_like(value, np.nan) if g is None else self.framework.numpy(g) + 0
                for g, value in zip(found, self.values[index], strict=True)
            ]

    def _state(self, layer: int, role: str) -> np.ndarray:
        if layer not in self._states:
            return super()._state(layer, role)
        parts = [self.framework.numpy(t).reshape(-1) for t in self._states[layer]]
        return np.concatenate(parts).astype(np.float64)

    def _own_buffers(self) -> list[Parameter]:
        infos = self.request.model.buffers
        return [b for b in infos if f"m{b.layer}" not in self.modules]

    def _to_framework(self, index: int) -> Any:
        info = self.request.model.parameters[index]
        if self.is_module[index]:
            return self.names["parameters_of"](self.modules[f"m{info.layer}"])
        return self.framework.leaf(self.values[index][0], not info.frozen)

    def put(self, index: int) -> None:
        for tensor, value in zip(self._tensors[index], self.values[index], strict=True):
            self.framework.write(tensor, value)

    def update(self) -> None:
        super().update()
        if self.protocol.zero_grad:
            for tensors in self._tensors:
                for tensor in tensors:
                    self.framework.set_gradient(tensor, None)

    def note_random_state(self, moment: str, **where: int) -> None:
        if moment == "after_step":
            self.record.add("held", event="step", live=self._held(), **where)
        for stream in self._streams:
            state = self.framework.stream_state(stream)
            self.record.stream(moment, state, stream=stream, **where)

    def _clear(self) -> None:
        """Gradients as they are before the first step."""
        prior = self.request.case.protocol.prior_gradients
        for info, tensors, values in zip(self.request.model.parameters, self._tensors, self.values, strict=True):
            for tensor, value in zip(tensors, values, strict=True):
                given = np.ones_like(value) if prior and not info.frozen else None
                self.framework.set_gradient(tensor, given)

    def backward(self, pending: Pending) -> None:
        for fired in self._fired:
            fired.clear()
        super().backward(pending)
        if pending.place.step == pending.place.microbatch == 0:
            # A graph may keep for good what hooks have packed.
            for kept in (reference() for reference, _ in self._kept):
                if kept is not None:
                    kept.value = None
            self._kept.clear()
        # The loss is still there, and with it the graph: what that did not let go of counts.
        self.note_bytes("after_backward", pending.place)
        self._waiting.remove(pending)
        pending.loss = None
        self.collect()
        self.record.hooks([max(fired.values(), default=0) for fired in self._fired], **pending.place.where)

    def _enter(self, layer: int) -> None:
        super()._enter(layer)
        self._entered, self._saves = layer, -1
        due = "recomputation_throws" if self._recomputes(layer) else "forward_throws"
        if self.trial == due and layer == self.request.case.protocol.inject_layer:
            raise TrialError(f"[trial] layer {layer} fails")

    def _recomputes(self, layer: int) -> bool:
        return self.framework.place is not None and self.framework.place.executions[layer] > 1

    def _exchanged(self, layer: int) -> bool:
        return self.trial == "op_exchanged" and self._recomputes(layer)

    def _made(self, layer: int, *outputs: Any) -> None:
        place = self.framework.place
        if place is None or self.trial:
            return
        execution = place.executions[layer] - 1
        where = {"layer": layer, **place.where}
        op = self.request.case.layers[layer].kind
        for index, y in enumerate(outputs):
            if execution == 0:
                self.record.add("grad_flags", output=index, requires_grad=self.framework.requires_grad(y), **where)
            hashed = self._hash(y)
            more = {"op": op, "execution": execution, **self._memory_of(y), **where}
            self.record.add("values", index=index, hash=hashed, **more)
            if layer in self._drawing:
                # Masks of the library's layers are seen only in their outputs.
                self.record.add("draws", elements=int(y.size), hash=hashed, execution=execution, **where)

    def _saved(self, t: Any, kept: Kept) -> None:
        self._saves += 1
        more = {"hash": self._hash(t), **self._memory_of(t)}
        entry = entry_of("values", layer=self._entered, index=self._saves, saved=True, **more)
        self._kept.append((weakref.ref(kept), entry))

    def begin(self) -> None:
        super().begin()
        if self.framework.cycles or self.protocol.inject != "none":
            gc.collect()
            self.framework.cycles = False
        self._base = self.framework.live() - self._own_bytes()

    def let_go(self) -> None:
        # Modules lie in cycles, and so may graphs of a trial and what a promise has made.
        self.framework.cycles = bool(self.modules or self.trial or self.request.case.options.get(PROMISE))
        # Functions of the model have the names, and the names the functions.
        self.names.clear()

    def _own_bytes(self) -> int:
        """Bytes of gradients, and of what the run itself keeps of forwards that wait."""
        leaves = [t for tensors in self._tensors for t in tensors] + [p.input for p in self._waiting]
        own = [self.framework.gradient(t) for t in leaves] + [t for p in self._waiting for t in (p.input, p.loss)]
        return sum(self.framework.size(t) for t in own if t is not None)

    def _held(self) -> int:
        return self.framework.live() - self._base - self._own_bytes()

    def note_bytes(self, moment: str, place: Place, retained: bool = False) -> None:
        """Notes what graphs keep now, their tensors and whatever lies beside them: memory in use that is neither the
        model's nor the run's."""
        held, where = self._held(), place.where
        self.record.add("bytes", moment=moment, saved=held, retained=retained, **where)
        if not retained:
            self.record.add("held", event=moment.removeprefix("after_"), live=held, **where)

    def forward(self, step: int, microbatch: int) -> Pending:
        pending = super().forward(step, microbatch)
        pending.outputs = ()
        self._waiting.append(pending)
        # Tensors that a layer saved for nothing that its output depends on are gone by now.
        for kept, entry in self._kept if step == microbatch == 0 else ():
            if kept() is not None:
                self.record.append("values", entry)
        self.note_bytes("after_forward", pending.place)
        return pending

    def _memory_of(self, t: Any) -> dict[str, int]:
        if not self._seen:
            return {}
        found = self._seen.setdefault(self.framework.memory(t), (len(self._seen), t))
        return {"memory": found[0], "bytes": self.framework.size(t)}

    def _hash(self, t: Any) -> str:
        return hash64(self.framework.numpy(t).tobytes())

    def restore(self) -> str:
        left = self.framework.put_back()
        for index in range(len(self._tensors)):
            self.put(index)
        self._clear()
        return left

    def message(self, error: Exception) -> str:
        return self.framework.message(error)

    def fail(self) -> None:
        self.seed()
        framework, arrays = self.framework, self.request.arrays
        framework.place = Place(0, 0, [0] * len(self.request.case.layers))
        assert arrays.trial_input is not None
        target = np.zeros(0) if arrays.trial_target is None else arrays.trial_target
        pending = framework.forward(self, arrays.trial_input, target, framework.place)
        if self.trial == "graph_dropped":
            return
        if self.trial == "input_changed":
            framework.spoil(pending.input)
        if self.trial == "weight_changed":
            used = self.request.model.layer_parameters[self.request.case.protocol.inject_layer]
            framework.spoil(self._tensors[used[0]][0])
        framework.backward(self, pending)
