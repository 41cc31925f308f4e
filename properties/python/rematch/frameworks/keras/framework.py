"""Keras on TensorFlow, PyTorch or JAX: `keras.remat()` of functions, and layers made in a
`keras.RematScope`."""

import gc
import os
from typing import Any

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras  # noqa: E402

from rematch.frameworks.keras.keras_layers import HELPERS, KINDS, MODULES, SAMPLES, VALUES  # noqa: E402
from rematch.frameworks.keras.promises import PROMISES, counted, gradients  # noqa: E402
from rematch.subjects.framework import COMMON, SEEN, Framework  # noqa: E402
from rematch.subjects.library import Library  # noqa: E402


class Network(keras.layers.Layer):
    """A layer that calls a function, in the place of an activation."""

    def __init__(self, function: Any):
        super().__init__(name="segment")
        self.activation = function

    def call(self, *values: Any) -> Any:
        return self.activation(*values)


def scoped(function: Any, **scope: Any) -> Any:
    with keras.RematScope(**scope):
        return Network(function)


def in_layer(objective: Any, arguments: Any) -> Any:
    """Takes its mode from the call of the layer that it runs in."""
    network = Network(lambda x: objective(x, *arguments[1:]))
    return network(arguments[0], training=True)


def whole(gradients: Any, sources: Any) -> Any:
    """Replaces missing gradients of a module by zeros; returns None if all are missing."""
    if not isinstance(sources, list) or all(g is None for g in gradients):
        return None if isinstance(sources, list) else gradients
    pairs = zip(gradients, sources, strict=True)
    return [keras.ops.zeros_like(s) if g is None else g for g, s in pairs]


def value_of(argument: Any) -> Any:
    if isinstance(argument, list):
        return [value_of(part) for part in argument]
    return argument.value if isinstance(argument, keras.Variable) else argument


def of_tensorflow(objective: Any, arguments: Any, trained: Any) -> Any:
    import tensorflow as tf

    sources = value_of([arguments[i] for i in trained])
    # Without the variables of frozen layers.
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(sources)
        loss, outputs = in_layer(objective, arguments)
    gradients = tape.gradient(loss, sources)
    return loss, outputs, [whole(g, s) for g, s in zip(gradients, sources, strict=True)]


def of_torch(objective: Any, arguments: Any, trained: Any) -> Any:
    for index, argument in enumerate(value_of(arguments)):
        for part in argument if isinstance(argument, list) else [argument]:
            part.requires_grad_(index in trained)
            part.grad = None
    loss, outputs = in_layer(objective, arguments)
    if loss.requires_grad:
        loss.backward()
    sources = value_of([arguments[i] for i in trained])
    found = [[p.grad for p in s] if isinstance(s, list) else s.grad for s in sources]
    gradients = [whole(g, s) for g, s in zip(found, sources, strict=True)]
    return loss.detach(), [y.detach() for y in outputs], gradients


class Updates(keras.StatelessScope):
    """A scope in which variables keep given values: what a forward assigns goes to `made`, not into them."""

    def __init__(self, values: Any):
        super().__init__(values)
        self.made: dict[int, Any] = {}

    def add_update(self, update: Any) -> None:
        super().add_update(update)
        self.made[id(update[0])] = update


def of_jax(objective: Any, arguments: Any, trained: Any, seen: Any = None) -> Any:
    """`seen`: a function of the loss, of what makes gradients of it, and of their sources."""
    import jax

    def step(values: Any) -> Any:
        given, variables = list(arguments), []
        for index, value in zip(trained, values, strict=True):
            if isinstance(given[index], list):
                variables += zip(given[index], value, strict=True)
            elif isinstance(given[index], keras.Variable):
                variables.append((given[index], value))
            else:
                given[index] = value
        with Updates(variables) as scope:
            loss, outputs = in_layer(objective, given)
        updated.extend(variable for variable, _ in scope.made.values())
        return loss, (outputs, [value for _, value in scope.made.values()])

    updated: list[Any] = []
    sources = value_of([arguments[i] for i in trained])
    loss, pull, (outputs, values) = jax.vjp(step, sources, has_aux=True)
    if seen is not None:
        seen(loss, pull, sources)
    (found,) = pull(jax.numpy.ones_like(loss))
    for variable, value in zip(updated, values, strict=True):
        variable.assign(value)
    return loss, outputs, found


def parameters_of(m: Any) -> list[Any]:
    return list(m.trainable_variables)


def state_of(m: Any) -> list[Any]:
    seeds = [v for v in m.non_trainable_variables if "seed_generator" in v.path]
    return [v for v in m.non_trainable_variables if not any(v is s for s in seeds)]


def set_mode(m: Any, train: bool) -> None:
    m.mode = train


SCOPES = {
    "full": "mode='full'",
    "activations": "mode='activations'",
    "larger_than": "mode='larger_than', output_size_threshold=0",
    "list_of_layers": "mode='list_of_layers', layer_names=['segment']",
}


class Keras(Framework):
    versions = {"keras": keras.__version__, "numpy": np.__version__}
    imports = "import math\n\nimport keras\n\nseeds = keras.random.SeedGenerator(0)"
    promises = PROMISES
    promise_helpers = (gradients, counted)
    checkpoint_function = "keras.remat"
    helpers = (Network, scoped, in_layer, whole, value_of, parameters_of, state_of, set_mode)
    helpers += HELPERS
    kinds = KINDS
    modules = MODULES
    losses = {
        "mse": "keras.ops.mean((keras.ops.reshape(y, target.shape) - target) ** 2)",
        "cross_entropy": "keras.ops.mean(keras.losses.sparse_categorical_crossentropy("
        "target, keras.ops.reshape(y, [y.shape[0], -1]), from_logits=True))",
    }
    features = COMMON
    observed = SEEN | {"rng_state", "executions", "absent_gradients"}
    checkpoint = "keras.remat({function})({arguments})"
    nested_functions = True
    sees_draws = True
    script_array = "keras.ops.convert_to_tensor({array})"
    script_parameter = "keras.Variable({array}, trainable=not {frozen})"
    script_random_state = "seeds.state"

    def __init__(self, scope: str | None) -> None:
        backend = keras.backend.backend()
        if backend == "torch":
            self.library = Library(
                "keras.layers",
                "keras.layers.Layer",
                ("keras", "--backend", backend),
                entry="call",
                make="built({make}, lambda m, x: m({given}))",
                named={"training": "m.mode"},
                values=VALUES,
                most=4,
            )
        else:
            self.modules = (*MODULES, *SAMPLES)
        self.name = f"keras {keras.__version__} on {backend}"
        before = "import os\n\n"
        of_backend = {"tensorflow": of_tensorflow, "torch": of_torch, "jax": of_jax}[backend]
        self.helpers += (Updates, of_backend) if backend == "jax" else (of_backend,)
        self.differentiator = of_backend.__name__
        self.whole_segments = backend != "torch"
        if backend != "tensorflow":
            # PyTorch stops a recomputation at the last tensor that was saved. JAX traces a layer once.
            self.observed = self.observed - {"executions"}
        if backend == "jax":
            from rematch.frameworks.jax.jax_layers import xla

            before = xla()
            self.cases_per_shape = 2
            self.new_plans = True
            self.observed = self.observed - {"absent_gradients"}
            self.sees_draws = False
            self.enter_line = ""
            from rematch.frameworks.jax.saved import OF_ARRAYS, WITHIN

            self.observed |= OF_ARRAYS
            self.within = WITHIN
        self.imports = f'{before}os.environ["KERAS_BACKEND"] = "{backend}"\n{self.imports}'
        if backend == "tensorflow":
            from rematch.frameworks.tensorflow.tensorflow_run import OBSERVED

            self.observed |= OBSERVED
        if backend != "jax":
            self.made_line = "made({layer}, {outputs})"
        if backend == "torch":
            self.observed |= {"saved_bytes", "saved_tensors", "released_bytes", "held_bytes"}
            # Views would keep the whole.
            self.kinds = KINDS | {"split": "map(keras.ops.copy, keras.ops.split({x}, [{features}], 1))"}
        if scope:
            self.promises = ()
            self.checkpoint = f"scoped({{function}}, {SCOPES[scope]})({{arguments}})"
        super().__init__()
        self.names["differentiate"] = of_backend
        if backend == "jax":
            from rematch.frameworks.jax.saved import Eager, within

            self.names["within"] = within
            self.run_type = Eager
        if backend == "tensorflow":
            from rematch.frameworks.tensorflow.tensorflow_run import OneCallRun

            self.run_type = OneCallRun
        if backend == "torch":
            from rematch.frameworks.keras.torch_run import TorchBackendRun

            self.run_type = TorchBackendRun
            # Each reading collects cycles first, which takes long where the heap is large.
            gc.freeze()

    def differentiate(self, run: Any, objective: Any, arguments: list[Any], trained: list[int]) -> Any:
        def states() -> list[Any]:
            return [self.names["seeds"].state.value, *(v.value for m in run.modules.values() for v in m.variables)]

        own = [*keras.tree.flatten(value_of(arguments[1:])), *states()]
        if self.differentiator == "of_torch":
            return run.differentiated(of_torch, objective, arguments, trained, own)
        if self.differentiator == "of_tensorflow":
            return run.both(self.place, of_tensorflow, objective, arguments, trained, own)
        place, held = self.place, []

        def seen(loss: Any, pull: Any, sources: Any) -> None:
            held[:] = [value_of(arguments), sources, *objective.args, *states()]
            run.after_forward(place, loss, pull, held)

        results = of_jax(objective, arguments, trained, seen)
        run.after_backward(place, (held, results, states()))
        return results

    def drop_compiled(self) -> None:
        if self.new_plans:
            import jax

            # Loops are compiled for every call, and stay.
            jax.clear_caches()

    def array(self, a: np.ndarray) -> Any:
        return keras.ops.convert_to_tensor(a)

    def numpy(self, a: Any) -> np.ndarray:
        return np.array(keras.ops.convert_to_numpy(a))

    def parameter(self, a: np.ndarray, frozen: bool) -> Any:
        return keras.Variable(a, trainable=not frozen)

    def generators(self, m: Any) -> list[Any]:
        return [v for v in m.non_trainable_variables if "seed_generator" in v.path]

    def bound(self, module: Any, values: Any) -> list[Any]:
        for variable, value in zip(parameters_of(module), values, strict=True):
            variable.assign(value)
        return parameters_of(module)

    def seed(self, seed: int) -> str:
        return f"keras.utils.set_random_seed({seed}), seeds.state.assign([0, {seed}])"

    def random_state(self) -> bytes:
        return self.numpy(self.names["seeds"].state).tobytes()
