"""A framework as a subject, from the few things that its adapter says.

The model of a case is written as source code in the framework (`source.py`) and run; an exported
script (`script.py`) has the same source. So an adapter is mostly a table of expressions. The rest
of a training step is done here, in NumPy, alike for plain and checkpointed runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from types import CodeType
from typing import Any

import numpy as np

from rematch.adapters.promises import broken, promise_for
from rematch.adapters.source import Module, Source, Template, evaluation, parameter_names
from rematch.case import Case, Choice, Segment, Sequential
from rematch.protocol import Request, Subject, Unsupported
from rematch.record import Record, hash64

COMMON = frozenset(
    {
        *("images", "multi_output_segment", "unused_output", "long_skip", "same_tensor_twice"),
        *("tied_weight", "tied_three_times", "frozen_input", "trainable_input"),
        *("frozen_parameters", "frozen_prefix", "odd_size", "nested_2", "nested_3", "nested_4"),
        *("non_reentrant", "early_stop_off", "no_check", "stateful_layer"),
        *("draws_in_checkpointed_segment", "two_drawing_segments", "sequential"),
        *("explicit_segments", "last_stored", "last_checkpointed", "segments_1", "several_steps"),
        *("accumulation", "eval_mode", "reevaluate", "sgd", "adam", "momentum", "mse"),
        *("cross_entropy", "float32", "small_integers", "more_than_a_few"),
    }
)
"""What a case may have in any framework: none of it needs an option of the checkpointing."""

SEEN = frozenset(
    {
        *("outputs", "losses", "input_gradients", "parameter_gradients", "parameters", "buffers"),
        "reevaluation",
    }
)
"""What the record of any framework has."""


@dataclass
class Place:
    """A forward that is running, or being differentiated: what its layers do is noted here."""

    step: int
    microbatch: int
    executions: list[int]
    draws: list[tuple[Any, ...]] = field(default_factory=list)


@dataclass
class Pending:
    """A forward whose backward has not run."""

    place: Place
    outputs: Sequence[Any]
    loss: Any
    input: Any = None
    gradients: list[Any] = field(default_factory=list)


class Framework(Subject):
    """Derive from it, and say what follows; `mlx.py` is a short example.

    Functions in which the framework differentiates are pure by default: `differentiate()`. One
    with a tape and gradients that are attributes overrides `forward()` and `backward()` instead.
    """

    imports: str = ""
    """Lines that import the framework, of scripts and of what runs here."""
    helpers: Sequence[Callable[..., Any]] = ()
    """Functions that the expressions use, and these, which everything else needs:

    differentiate(objective, arguments, trained): `objective(*arguments)` is a loss and a tuple of
    outputs. Returns both, and a list of the gradients of the loss by the arguments numbered in
    `trained`; it may be empty.
    parameters_of(m): a list of the arrays that a module of the library trains.
    state_of(m): a list of the arrays that a forward of it may change.
    set_mode(m, train): sets it to training or evaluation.

    Their source becomes part of scripts, so they use nothing but `imports` and one another, each
    those above it.
    """
    differentiator: str = "differentiate"
    """Of the helpers, the one that scripts call in its place."""
    kinds: Mapping[str, Template] = {}
    """How the framework computes each kind of layer."""
    losses: Mapping[str, str] = {}
    """Expressions of `{y}`, the output as rows, and `{target}`."""
    modules: Sequence[Module] = ()
    """Layers of its library."""
    features: frozenset[str] = COMMON
    observed: frozenset[str] = SEEN
    checkpoint: str = ""
    """An expression that runs `{function}` on `{arguments}`, checkpointed."""
    promises: Sequence[Callable[..., Any]] = ()
    """What no case can say (`promises.py`)."""
    promise_helpers: Sequence[Callable[..., Any]] = ()
    """Functions that promises, or `checkpoint_function`, use."""
    checkpoint_function: str = ""
    """The expression of what promises get: it turns a function into a checkpointed one."""
    closes_over_parameters: bool = False
    """Functions use parameters as names around them; otherwise they are arguments."""
    by_keyword: bool = False
    """Segments are called with keyword arguments."""
    extras: Sequence[str] = ()
    """Further arguments of each function, which keep their names (a key, say)."""
    bind: str = "{m}"
    """The module `{m}` with its parameters `{w}`, as an expression."""
    detach: str = "{x}"
    script_array: str = "{array}"
    """The framework's array, of NumPy's `{array}`."""
    script_parameter: str = ""
    """Likewise a parameter, `{frozen}` or not; an array unless it is said."""
    script_setup: Sequence[str] = ()
    """Lines before each run of a script."""
    script_random_state: str = ""
    enter_line: str = "enter({layer})"
    made_line: str = ""
    """Behind each layer; `{outputs}` are the names of what it returned."""
    drew_line: str = "drew({layer}, {x}, {y})"
    """Behind a layer that draws; of its operand and its output."""
    nested_functions: bool = False
    """Functions stand within one another, and use parameters as names around them."""
    modules_are_arguments: bool = False
    """Functions take modules, as `m3`, in the place of their parameters."""
    state: str = ""
    """The name of a mapping of layers to their `m.state`, which functions take and return, as does
    the call of a module: it returns its output and the new mapping."""
    sees_draws: bool = False
    """Whether an output can be looked at where it is made; draws are then part of the record."""

    def __init__(self) -> None:
        self.layers = [module.declaration for module in self.modules]
        self.modules_by_declaration = dict(zip(self.layers, self.modules, strict=True))
        self.exports = True
        helpers = [*self.helpers, *self.promise_helpers]
        self.names: dict[str, Any] = {f.__name__: f for f in helpers}
        exec(f"import numpy as np\n{self.imports}", self.names)
        self.run_type: type[Run] = Run
        self._wrong: dict[Callable[..., Any], str] = {}
        """What became of promises that were tried."""
        self.place: Place | None = None
        """Of the forward on whose behalf layers run."""

    def implements(self, features: Sequence[str]) -> list[str]:
        known = self.features - ({"mse", "cross_entropy"} - set(self.losses))
        known |= set(self.kinds) | ({"custom"} if self.modules else set())
        return [f for f in features if f in known]

    def observes(self, observables: Sequence[str]) -> list[str]:
        seen = self.observed | ({"draws"} if self.sees_draws else set())
        return [o for o in observables if o in seen]

    def checkpoint_call(self, function: str, arguments: Sequence[str], choice: Choice) -> str:
        """The expression that runs a function of the source, checkpointed."""
        arguments = [f"{a}={a}" for a in arguments] if self.by_keyword else arguments
        return self.checkpoint.format(
            function=function,
            arguments=", ".join(arguments),
            reentrant=choice.reentrant,
            preserve_rng=choice.preserve_rng,
        )

    def sequential_call(self, plan: Sequential, functions: Sequence[str], seed: int) -> str:
        """The expression that runs a chain of functions on `x` under that plan, by the framework's
        own function for it; nothing: segments are called one by one."""
        return ""

    def handed_on(self, segment: Segment) -> str:
        """How the segment's function returns `{x}` that it was given, for layers behind it."""
        return "{x}"

    # What the framework does. Arrays are the framework's, unless NumPy's are named.

    def array(self, a: np.ndarray) -> Any:
        raise NotImplementedError

    def numpy(self, a: Any) -> np.ndarray:
        return np.asarray(a)

    def message(self, error: Exception) -> str:
        """Of an error, without what changes from run to run."""
        return str(error)

    def requires_grad(self, a: Any) -> bool:
        """For subjects that observe "grad_flags"."""
        return False

    def parameter(self, a: np.ndarray, frozen: bool) -> Any:
        """What the model gets as a parameter of that value."""
        return self.array(a)

    def bound(self, module: Any, values: Sequence[np.ndarray]) -> list[Any]:
        """What the model gets as the parameters of a module."""
        return [self.array(a) for a in values]

    def seed(self, seed: int) -> str:
        """The line that seeds the framework."""
        raise NotImplementedError

    def setup(self, request: Request) -> Sequence[str]:
        """Lines after the one that seeds."""
        return ()

    def script_lines(self, request: Request) -> Sequence[str]:
        """Lines after the one that seeds, in scripts."""
        return [*self.script_setup, *self.setup(request)]

    def random_state(self) -> bytes:
        """For subjects that observe "rng_state"."""
        raise NotImplementedError

    def given(self, run: Run, x: np.ndarray) -> list[Any]:
        """The values of `run.arguments`."""
        return [self.array(x), *run.parameters]

    def differentiate(
        self, run: Run, objective: partial[Any], arguments: list[Any], trained: list[int]
    ) -> tuple[Any, Sequence[Any], Sequence[Any]]:
        """The helper of that name; overridden by what compiles first, which `run.key` names: what
        a compiled step may not remember is in `objective.args`, beside `arguments`."""
        return self.names["differentiate"](objective, arguments, trained)

    def forward(self, run: Run, x: np.ndarray, target: np.ndarray, place: Place) -> Pending:
        """Runs a forward and, as most frameworks know no difference, its backward."""
        given, trained = self.given(run, x), run.trained
        extras = [run.names[e] for e in self.extras]
        objective = partial(run.objective, self.array(target), extras)
        loss, outputs, gradients = self.differentiate(run, objective, given, trained)
        found = dict(zip(trained, gradients, strict=True))
        every = [found.get(i) for i in range(len(run.parameters) + 1)]
        return Pending(place, outputs, loss, None, every)

    def backward(self, run: Run, pending: Pending) -> Any:
        """Adds to the gradients of the run, and returns that of the input, or None."""
        for index, gradient in enumerate(pending.gradients[1:]):
            if gradient is not None:
                run.add_gradient(index, gradient)
        return pending.gradients[0]

    def run(self, request: Request, record: Record) -> None:
        run = self.run_type(self, request, record)
        try:
            run.go()
        except Unsupported:
            raise
        except Exception as error:
            record.error(type(error).__name__, self.message(error))
        else:
            self._keep_promise(request, record)
        finally:
            self.place = None

    def _keep_promise(self, request: Request, record: Record) -> None:
        promise = promise_for(self, request.case.seed) if request.checkpointed else None
        if promise is None:
            return
        if promise not in self._wrong:
            self._wrong[promise] = broken(self, promise)
        if self._wrong[promise]:
            record.error("BrokenPromise", self._wrong[promise])

    def export(self, request: Request, finding: str) -> str:
        from rematch.adapters.script import export

        return export(self, request, finding)


@lru_cache(maxsize=256)
def _compiled(source: str) -> CodeType:
    return compile(source, "<model>", "exec")


class Run:
    """One run of a case; the protocol is that of PROTOCOL.md."""

    def __init__(self, framework: Framework, request: Request, record: Record) -> None:
        self.framework, self.request, self.record = framework, request, record
        case, model, arrays = request.case, request.model, request.arrays
        self.names: dict[str, Any] = {**framework.names, "enter": self._enter, "drew": self._drew}
        source = Source(
            framework,
            case,
            model,
            request.checkpointed,
            case.protocol.train,
            detached=request.detached_layers,
        )
        self.source = source.text()
        self._evaluated = evaluation(source)
        self.modules = self._make(source.modules())
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
        return repr((self.source, case.protocol.loss, self.trained, modes))

    def go(self) -> None:
        """Runs all steps. Whatever the framework raises comes through."""
        protocol = self.request.case.protocol
        self.seed()
        for step in range(protocol.steps):
            self._step(step)
        if protocol.reevaluate:
            self._reevaluate(protocol.steps - 1)

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
        self.gradients[index] = (
            new if old is None else [a + b for a, b in zip(old, new, strict=True)]
        )

    @property
    def trained(self) -> list[int]:
        """The arguments of the objective to differentiate by: 0 is the input, 1 the first
        parameter."""
        request = self.request
        trained = [0] if request.case.protocol.input_requires_grad else []
        return trained + [i + 1 for i, p in enumerate(request.model.parameters) if not p.frozen]

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
            self.names["set_mode"](module, train and not layer.eval)

    def _to_framework(self, index: int) -> Any:
        info = self.request.model.parameters[index]
        if self.is_module[index]:
            return self.framework.bound(self.modules[f"m{info.layer}"], self.values[index])
        return self.framework.parameter(self.values[index][0], info.frozen)

    def _update(self, index: int) -> None:
        """After the optimizer has changed the values of a parameter."""
        self.parameters[index] = self._to_framework(index)

    def _step(self, step: int) -> None:
        protocol, arrays, record = self.request.case.protocol, self.request.arrays, self.record
        framework = self.framework
        layers = len(self.request.case.layers)
        waiting: list[Pending] = []
        for microbatch in range(protocol.microbatches):
            at = step * protocol.microbatches + microbatch
            framework.place = Place(step, microbatch, [0] * layers)
            pending = framework.forward(
                self, arrays.inputs[at], arrays.targets[at], framework.place
            )
            where = {"step": step, "microbatch": microbatch}
            for index, output in enumerate(pending.outputs):
                flag = framework.requires_grad(output)
                found = framework.numpy(output)
                record.observe("output", found, index=index, requires_grad=flag, **where)
            record.observe("loss", np.asarray(framework.numpy(pending.loss)), **where)
            self._note_random_state("after_forward", **where)
            waiting.append(pending)
            if not protocol.forwards_first:
                self._backward(waiting.pop())
        while waiting:
            self._backward(waiting.pop())
        for index, gradient in enumerate(self.gradients):
            whole = None if gradient is None else _to_one(gradient, self.is_module[index])
            record.observe("parameter_gradient", whole, step=step, index=index)
        self._train()
        for index, parts in enumerate(self.values):
            record.observe(
                "parameter", _to_one(parts, self.is_module[index]), step=step, index=index
            )
        for index, info in enumerate(self.request.model.buffers):
            record.observe("buffer", self._state(info.layer, info.role), step=step, index=index)
        self._note_random_state("after_step", step=step)

    def _backward(self, pending: Pending) -> None:
        place = pending.place
        where = {"step": place.step, "microbatch": place.microbatch}
        self.framework.place = place
        gradient = self.framework.backward(self, pending)
        self._note_random_state("after_backward", **where)
        found = None if gradient is None else self.framework.numpy(gradient) + 0
        self.record.observe("input_gradient", found, **where)
        if "executions" in self.framework.observed:
            self.record.executions(place.executions, **where)
        self._note_draws(place)

    def _note_draws(self, place: Place) -> None:
        where = {"step": place.step, "microbatch": place.microbatch}
        for layer, execution, operand, output in place.draws:
            y = self.framework.numpy(output)
            spec = self.request.case.layers[layer]
            # What was added is known up to rounding, which the operand decides.
            noise = np.round(y - self.framework.numpy(operand), 3) + 0
            drawn = y != 0 if spec.kind == "dropout" else noise
            more = {"execution": execution, "stream": spec.stream, **where}
            self.record.draw(layer, y.size, hash64(drawn.tobytes()), **more)
        place.draws.clear()

    def _train(self) -> None:
        for index, gradient in enumerate(self.gradients):
            if gradient is not None:
                self._optimizer.step(index, self.values[index], gradient)
                self._update(index)
        self._optimizer.count += 1
        self.gradients = [None] * len(self.gradients)

    def _reevaluate(self, step: int) -> None:
        x = self.request.arrays.reevaluation
        assert x is not None, "reevaluate without an input for it"
        model = self._function(self._evaluated.text(), "model")
        self._set_modes(False)
        extras = [self.names[e] for e in self.framework.extras]
        output = self.call(extras, *self.framework.given(self, x))[0]
        self.record.observe("reevaluation", self.framework.numpy(output), step=step)

    def _state(self, layer: int, role: str) -> np.ndarray:
        own = self.modules.get(f"m{layer}")
        if own is None:
            return self.framework.numpy(self.names[f"{role}{layer}"])
        return _to_one([self.framework.numpy(a) for a in self.names["state_of"](own)], True).astype(
            np.float64
        )

    def _note_random_state(self, moment: str, **where: int) -> None:
        if "rng_state" in self.framework.observed:
            self.record.stream(moment, self.framework.random_state(), **where)

    def _enter(self, layer: int) -> None:
        place = self.framework.place
        if place is not None:
            place.executions[layer] += 1

    def _drew(self, layer: int, operand: Any, output: Any) -> None:
        place = self.framework.place
        if place is not None:
            place.draws.append((layer, place.executions[layer] - 1, operand, output))


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
