"""One run of a case by an adapter: the training steps around what the framework does."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import CodeType
from typing import Any

import numpy as np

from rematch.subjects.case import Case
from rematch.subjects.description import Description, Pending, Place
from rematch.subjects.protocol import Request
from rematch.subjects.records import Record, hash64
from rematch.subjects.source import Source, evaluation, parameter_names, trained_arguments
from rematch.subjects.steps import Steps


@lru_cache(maxsize=256)
def _compiled(source: str) -> CodeType:
    return compile(source, "<model>", "exec")


class Run(Steps):
    """One run of a case, whose model is source code."""

    notes_draws_at_once = False
    """Draws are noted where they are made: a later layer may write to the output, or it is not to be held."""

    def __init__(self, framework: Description, request: Request, record: Record) -> None:
        super().__init__(request, record)
        self.framework = framework
        case, model, arrays = request.case, request.model, request.arrays
        self.names: dict[str, Any] = {**framework.names, "enter": self._enter, "drew": self._drew}
        source = Source(
            framework, case, model, request.checkpointed, case.protocol.train, detached=request.detached_layers
        )
        self.source = source.text()
        self._evaluated = evaluation(source)
        self._expressions = source.modules()
        self.modules = self._make(self._expressions)
        for info, buffer in zip(model.buffers, arrays.buffers, strict=True):
            if f"m{info.layer}" not in self.modules:
                self.names[f"{info.role}{info.layer}"] = framework.array(buffer)
        self.parameter_names = parameter_names(case, model)
        self.arguments, self._signature = source.arguments(), source.signature()
        self.values: list[list[np.ndarray]] = []
        for info, array in zip(model.parameters, arrays.parameters, strict=True):
            own = self.modules.get(f"m{info.layer}")
            parts = [array] if own is None else framework.names["parameters_of"](own)
            self.values.append([np.array(framework.numpy(p)) if own else p.copy() for p in parts])
        self.is_module = [case.layers[p.layer].kind == "custom" for p in model.parameters]
        self.parameters = [self._to_framework(i) for i in range(len(self.values))]
        self.gradients: list[list[np.ndarray] | None] = [None] * len(self.values)
        self.model = self._function(self.source, "model")
        self._set_modes(case.protocol.train)
        self._optimizer = _Optimizer(case)

    @property
    def key(self) -> str:
        """The same in all runs that may share what was compiled."""
        case = self.request.case
        modes = case.protocol.train, [layer.eval for layer in case.layers]
        return repr((self.source, self._expressions, case.protocol.loss, self.trained, modes))

    def begin(self) -> None:
        self.seed()

    def seed(self) -> None:
        """Random states as they are before the first step."""
        lines = [self.framework.seed(self.request.case.seed % 2**31)]
        exec("\n".join([*lines, *self.framework.setup(self.request)]), self.names)

    def add_gradient(self, index: int, gradient: Any) -> None:
        """`gradient`: an array, of a module a list of them."""
        parts = list(gradient) if self.is_module[index] else [gradient]
        # Where a whole segment is differentiated, an output that nothing uses brings zeros, and the
        # sum of two zeros has another sign than the one alone.
        new = [self.framework.numpy(part) + 0 for part in parts]
        old = self.gradients[index]
        self.gradients[index] = new if old is None else [a + b for a, b in zip(old, new, strict=True)]

    @property
    def trained(self) -> list[int]:
        """The arguments of the objective to differentiate by."""
        return trained_arguments(self.request.case, self.request.model)

    def objective(self, target: Any, extras: Sequence[Any], *arguments: Any) -> Any:
        """The loss of a forward, and its outputs."""
        outputs = self.call(extras, *arguments)
        return self.loss(outputs[0], target), outputs

    def call(self, extras: Sequence[Any], *arguments: Any) -> Any:
        """The model's outputs."""
        values = dict(zip(self.framework.extras, extras, strict=True))
        values.update(zip(self.arguments, arguments, strict=True))
        if self.framework.closes_over_parameters:
            self.names.update(zip(self.parameter_names, arguments[1:], strict=True))
        return self.model(*(values[name] for name in self._signature))

    def loss(self, output: Any, target: Any) -> Any:
        """The loss of the model's first output."""
        return self._loss(output, target)

    def _make(self, expressions: Mapping[str, str]) -> dict[str, Any]:
        made = {}
        case = self.request.case
        for name, expression in expressions.items():
            # The weights of a layer depend on the case's seed alone.
            exec(self.framework.seed((case.seed + int(name[1:])) % 2**31), self.names)
            made[name] = self.names[name] = eval(expression, self.names)
        return made

    def _function(self, source: str, name: str) -> Callable[..., Any]:
        loss = self.framework.losses[self.request.case.protocol.loss]
        whole = f"{source}\n\ndef loss_of(y, target):\n    return {loss}\n"
        exec(_compiled(whole), self.names)
        self._loss = self.names["loss_of"]
        return self.names[name]

    def _set_modes(self, train: bool) -> None:
        for name, module in self.modules.items():
            layer = self.request.case.layers[int(name[1:])]
            self.names["set_mode"](module, layer.trains(train))

    def _to_framework(self, index: int) -> Any:
        info = self.request.model.parameters[index]
        if self.is_module[index]:
            return self.framework.bound(self.modules[f"m{info.layer}"], self.values[index])
        return self.framework.parameter(self.values[index][0], info.frozen)

    def put(self, index: int) -> None:
        """After the optimizer has changed the values of a parameter."""
        self.parameters[index] = self._to_framework(index)

    def forward(self, step: int, microbatch: int) -> Pending:
        framework, arrays = self.framework, self.request.arrays
        at = step * self.protocol.microbatches + microbatch
        framework.place = place = Place(step, microbatch, [0] * len(self.request.case.layers))
        where = place.where
        pending = framework.forward(self, arrays.inputs[at], arrays.targets[at], place)
        for index, output in enumerate(pending.outputs):
            flag = framework.requires_grad(output)
            self.note("output", framework.numpy(output), index=index, requires_grad=flag, **where)
        self.note("loss", np.asarray(framework.numpy(pending.loss)), **where)
        self.note_random_state("after_forward", **where)
        return pending

    def backward(self, pending: Pending) -> None:
        place, where = pending.place, pending.place.where
        self.framework.place = place
        gradient = self.framework.backward(self, pending)
        self.note_random_state("after_backward", **where)
        self.note("input_gradient", None if gradient is None else self.framework.numpy(gradient) + 0, **where)
        if "executions" in self.framework.observed:
            self.record.executions(place.executions, **where)
        self._note_draws(place)

    def note(self, quantity: str, value: np.ndarray | None, **where: Any) -> None:
        self.record.observe(quantity, value, **where)

    def gradient(self, index: int) -> np.ndarray | None:
        gradient = self.gradients[index]
        return None if gradient is None else _to_one(gradient, self.is_module[index])

    def parameter(self, index: int) -> np.ndarray:
        return _to_one(self.values[index], self.is_module[index])

    def buffer(self, index: int) -> np.ndarray:
        info = self.request.model.buffers[index]
        return self._state(info.layer, info.role)

    def _note_draws(self, place: Place) -> None:
        for layer, execution, operand, output in place.draws:
            y = self.framework.numpy(output)
            spec = self.request.case.layers[layer]
            # y is x + noise rounded once, so the difference is the noise within half an ulp of y,
            # less than 0.0001 for |y| < 1024. Three decimals hide that an operand differs in its
            # last bits, which other laws judge, and tell any two draws apart.
            noise = np.round(y - self.framework.numpy(operand), 3) + 0
            drawn = y != 0 if spec.kind == "dropout" else noise
            more = {"layer": layer, "execution": execution, "stream": spec.stream, **place.where}
            self.record.add("draws", elements=y.size, hash=hash64(drawn.tobytes()), **more)
        place.draws.clear()

    def update(self) -> None:
        for index, gradient in enumerate(self.gradients):
            if gradient is not None:
                self._optimizer.step(index, self.values[index], gradient)
                self.put(index)
        self._optimizer.count += 1
        self.gradients = [None] * len(self.gradients)

    def evaluate(self) -> np.ndarray:
        trained, self.model = self.model, self._function(self._evaluated.text(), "model")
        self._set_modes(False)
        extras = [self.names[e] for e in self.framework.extras]
        x = self.request.arrays.reevaluation
        output = self.framework.numpy(self.call(extras, *self.framework.given(self, x))[0])
        # A step that later runs share calls this run's model where it has to be traced again.
        self.model = trained
        self._set_modes(self.protocol.train)
        return output

    def _state(self, layer: int, role: str) -> np.ndarray:
        own = self.modules.get(f"m{layer}")
        if own is None:
            return self.framework.numpy(self.names[f"{role}{layer}"])
        return _to_one([self.framework.numpy(a) for a in self.names["state_of"](own)], True).astype(np.float64)

    def note_random_state(self, moment: str, **where: int) -> None:
        if "rng_state" in self.framework.observed:
            self.record.stream(moment, self.framework.random_state(), **where)

    def _enter(self, layer: int) -> None:
        place = self.framework.place
        if place is not None:
            self.record.add("live", event="layer", layer=layer, execution=place.executions[layer], **place.where)
            place.executions[layer] += 1

    def _drew(self, layer: int, operand: Any, output: Any) -> None:
        place = self.framework.place
        if place is not None:
            place.draws.append((layer, place.executions[layer] - 1, operand, output))
            if self.notes_draws_at_once:
                self._note_draws(place)


def _to_one(parts: Sequence[np.ndarray], is_module: bool) -> np.ndarray:
    """All elements, one array after the other; an array that is alone keeps its shape."""
    if not is_module:
        return parts[0]
    return np.concatenate([p.reshape(-1) for p in parts]) if parts else np.zeros(0, np.float32)


class _Optimizer:
    """SGD or Adam, as torch.optim defines them."""

    def __init__(self, case: Case) -> None:
        self._protocol = case.protocol
        self._state: dict[int, list[list[np.ndarray]]] = {}
        self.count = 1

    def step(self, index: int, values: list[np.ndarray], gradients: list[np.ndarray]) -> None:
        """Changes `values` in place."""
        rate, momentum = self._protocol.learning_rate, self._protocol.momentum
        for part, (value, gradient) in enumerate(zip(values, gradients, strict=True)):
            g = gradient.astype(value.dtype)
            state = self._state.setdefault((index, part), [])  # type: ignore[arg-type]
            if self._protocol.optimizer == "adam":
                if not state:
                    state += [np.zeros_like(value), np.zeros_like(value)]
                state[0] = 0.9 * state[0] + 0.1 * g
                state[1] = 0.999 * state[1] + 0.001 * g * g
                root = np.sqrt(state[1]) / np.sqrt(1 - 0.999**self.count) + 1e-8
                value -= (rate / (1 - 0.9**self.count) * state[0] / root).astype(value.dtype)
                continue
            if momentum:
                state[:] = [g.copy() if not state else momentum * state[0] + g]
                g = state[0]
            value -= (rate * g).astype(value.dtype)
