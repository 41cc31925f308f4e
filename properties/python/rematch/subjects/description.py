"""Description of a framework by its adapter: tables of expressions, and conversions from and to NumPy."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rematch.subjects.adapter_layers import Module, Template
from rematch.subjects.case import Choice, Segment, Sequential
from rematch.subjects.library import Library
from rematch.subjects.protocol import Request

COMMON = frozenset(
    {
        *("images", "multi_output_segment", "unused_output", "long_skip", "same_tensor_twice"),
        *("tied_weight", "tied_three_times", "frozen_input", "trainable_input"),
        *("frozen_parameters", "frozen_prefix", "odd_size", "nested_2", "nested_3", "nested_4"),
        *("non_reentrant", "early_stop_off", "no_check", "stateful_layer"),
        *("draws_in_checkpointed_segment", "two_drawing_segments", "sequential"),
        *("explicit_segments", "last_stored", "last_checkpointed", "segments_1", "several_steps"),
        *("accumulation", "eval_mode", "eval_layer", "reevaluate", "sgd", "adam", "momentum"),
        *("mse", "cross_entropy", "float32", "small_integers", "second_block", "more_than_a_few"),
    }
)
"""Features that cases may have in any framework: none needs an option of the checkpointing."""

SEEN = frozenset(
    {*("outputs", "losses", "input_gradients", "parameter_gradients", "parameters", "buffers"), "reevaluation"}
)
"""Observables that the record of any framework has."""


@dataclass
class Place:
    """A forward that is running, or being differentiated: what its layers do is noted here."""

    step: int
    microbatch: int
    executions: list[int]
    draws: list[tuple[Any, ...]] = field(default_factory=list)

    @property
    def where(self) -> dict[str, int]:
        """Its step and microbatch, as records take them."""
        return {"step": self.step, "microbatch": self.microbatch}


@dataclass
class Pending:
    """A forward whose backward has not run."""

    place: Place
    outputs: Sequence[Any]
    loss: Any
    input: Any = None
    gradients: list[Any] = field(default_factory=list)


class Description:
    """The tables of an adapter, and its functions between the framework and NumPy."""

    name: str
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
    """Name of the helper that scripts call in its place."""
    script_gradient: str = ""
    """Lines that return the gradient of `objective({arguments})`, the loss alone, by `{name}`, the argument number
    `{at}`, an array; `numbers()` surrounds what is returned."""
    kinds: Mapping[str, Template] = {}
    """How the framework computes each kind of layer."""
    losses: Mapping[str, str] = {}
    """Expressions of `{y}`, the output as rows, and `{target}`."""
    modules: Sequence[Module] = ()
    """Layers that people write with it, and, in time, those of its library."""
    library: Library | None = None
    """Where those are."""
    features: frozenset[str] = COMMON
    observed: frozenset[str] = SEEN
    checkpoint: str = ""
    """An expression that runs `{function}` on `{arguments}`, checkpointed."""
    promises: Sequence[Callable[..., Any]] = ()
    """Promises, which no case can express (`promises.py`)."""
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
    script_random_state: str = ""
    enter_line: str = "enter({layer})"
    within: str = ""
    """The expression of what a layer returns in plain runs, around its `{expression}`; that itself unless it is
    said."""
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
        helpers = [*self.helpers, *self.promise_helpers]
        self.names: dict[str, Any] = {f.__name__: f for f in helpers}
        exec(f"import numpy as np\n{self.imports}", self.names)
        self.place: Place | None = None
        """The forward on whose behalf layers run."""

    def checkpoint_call(
        self, function: str, arguments: Sequence[str], choice: Choice, chosen: Mapping[str, str]
    ) -> str:
        """The expression that runs a function of the source, checkpointed. `chosen`: the case's options."""
        arguments = [f"{a}={a}" for a in arguments] if self.by_keyword else arguments
        return self.checkpoint.format(
            function=function,
            arguments=", ".join(arguments),
            reentrant=choice.reentrant,
            preserve_rng=choice.preserve_rng,
        )

    def sequential_call(self, plan: Sequential, functions: Sequence[str], chosen: Mapping[str, str]) -> str:
        """The expression that runs a chain of functions on `x` under that plan, by the framework's
        own function for it; nothing: segments are called one by one. `chosen`: the case's options."""
        return ""

    def handed_on(self, segment: Segment, chosen: Mapping[str, str]) -> str:
        """How the segment's function returns `{x}` that it was given, for layers behind it. `chosen`: the case's options."""
        return "{x}"

    # Operations of the framework. Arrays are the framework's, unless NumPy's are named.

    def array(self, a: np.ndarray) -> Any:
        raise NotImplementedError

    def numpy(self, a: Any) -> np.ndarray:
        return np.asarray(a)

    def message(self, error: Exception) -> str:
        """Text of an error without parts that change from run to run or between machines."""
        text = re.sub(r"/\S*/(?=(site-packages|rematch)/)", "", str(error))
        return re.sub(r"\b0x[0-9a-f]+", "0x...", text)

    def requires_grad(self, a: Any) -> bool:
        """For subjects that observe "grad_flags"."""
        return False

    def parameter(self, a: np.ndarray, frozen: bool) -> Any:
        """Returns a parameter of that value for the model."""
        return self.array(a)

    def bound(self, module: Any, values: Sequence[np.ndarray]) -> list[Any]:
        """Returns the parameters of a module for the model."""
        return [self.array(a) for a in values]

    def seed(self, seed: int) -> str:
        """The line that seeds the framework."""
        raise NotImplementedError

    def setup(self, request: Request) -> Sequence[str]:
        """Lines after the one that seeds."""
        return ()

    def script_lines(self, request: Request) -> Sequence[str]:
        """Lines after the one that seeds, in scripts."""
        return self.setup(request)

    def random_state(self) -> bytes:
        """For subjects that observe "rng_state"."""
        raise NotImplementedError

    def put_back(self) -> str:
        """Settings that an error left changed; what they are is returned."""
        return ""

    def forward(self, run: Any, x: np.ndarray, target: np.ndarray, place: Place) -> Pending:
        """Runs a forward of the run's model and, where the framework knows no difference, its backward."""
        raise NotImplementedError

    def backward(self, run: Any, pending: Pending) -> Any:
        """Adds to the gradients of the run, and returns that of the input, or None."""
        raise NotImplementedError

    def drop_compiled(self) -> None:
        """Drops what was compiled, in a framework that keeps it. Called when that is much."""
