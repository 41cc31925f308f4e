"""A framework as a subject, from the few things that its adapter says.

The model of a case is written as source code in the framework (`source.py`) and run; an exported
script (`script.py`) has the same source. So an adapter is mostly a table of expressions. The rest
of a training step is done here, in NumPy, alike for plain and checkpointed runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from rematch.case import Choice, Segment, Sequential
from rematch.promises import broken, promise_for
from rematch.protocol import Request, Subject, Unsupported
from rematch.record import Record
from rematch.run import Pending, Place, Run
from rematch.source import Module, Template

COMMON = frozenset(
    {
        *("images", "multi_output_segment", "unused_output", "long_skip", "same_tensor_twice"),
        *("tied_weight", "tied_three_times", "frozen_input", "trainable_input"),
        *("frozen_parameters", "frozen_prefix", "odd_size", "nested_2", "nested_3", "nested_4"),
        *("non_reentrant", "early_stop_off", "no_check", "stateful_layer"),
        *("draws_in_checkpointed_segment", "two_drawing_segments", "sequential"),
        *("explicit_segments", "last_stored", "last_checkpointed", "segments_1", "several_steps"),
        *("accumulation", "eval_mode", "eval_layer", "reevaluate", "sgd", "adam", "momentum"),
        *("mse", "cross_entropy", "float32", "small_integers", "more_than_a_few"),
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


def mappings() -> int:
    """Of this process."""
    with open("/proc/self/maps", "rb") as maps:
        return sum(1 for _ in maps)


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
        self._runs = 0

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
        """Of an error, without what changes from run to run, and from machine to machine."""
        text = re.sub(r"/\S*/(?=(site-packages|rematch)/)", "", str(error))
        return re.sub(r"\b0x[0-9a-f]+", "0x...", text)

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

    def put_back(self) -> str:
        """Settings that an error left changed; what they are is returned."""
        return ""

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

    def drop_compiled(self) -> None:
        """Drops what was compiled, in a framework that keeps it. Called when that is much."""

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
            self._runs += 1
            # Some frameworks map each piece of compiled code by itself; Linux allows 65,530.
            if self._runs % 8 == 0 and mappings() > 30_000:
                self.drop_compiled()

    def _keep_promise(self, request: Request, record: Record) -> None:
        promise = promise_for(self, request.case.seed) if request.checkpointed else None
        if promise is None:
            return
        if promise not in self._wrong:
            self._wrong[promise] = broken(self, promise)
        if self._wrong[promise]:
            record.error("BrokenPromise", self._wrong[promise])

    def export(self, request: Request, finding: str) -> str:
        from rematch.script import export

        return export(self, request, finding)
