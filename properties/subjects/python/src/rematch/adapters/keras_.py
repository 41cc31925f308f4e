"""Keras on TensorFlow or PyTorch: `keras.remat()` of functions, and layers made in a
`keras.RematScope`."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras  # noqa: E402

from rematch.adapters.framework import COMMON, SEEN, Framework  # noqa: E402
from rematch.adapters.promises.keras import PROMISES, gradients  # noqa: E402
from rematch.adapters.source import Module, where_drawn  # noqa: E402
from rematch.case import Layer  # noqa: E402


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
    """What runs within a layer takes its mode from the call of that layer."""
    network = Network(lambda x: objective(x, *arguments[1:]))
    return network(arguments[0], training=True)


def whole(gradients: Any, sources: Any) -> Any:
    """With zeros for what is missing of a module's gradients, unless all are."""
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


def parameters_of(m: Any) -> list[Any]:
    return list(m.trainable_variables)


def state_of(m: Any) -> list[Any]:
    seeds = [v for v in m.non_trainable_variables if "seed_generator" in v.path]
    return [v for v in m.non_trainable_variables if not any(v is s for s in seeds)]


def set_mode(m: Any, train: bool) -> None:
    m.mode = train


def built(layer: Any, *shape: int, operands: int = 1) -> Any:
    layer(*[keras.ops.ones(shape)] * operands)
    return layer


class Block(keras.layers.Layer):
    """A layer of layers, which take their mode from the call that they are part of."""

    def __init__(self, *layers: Any):
        super().__init__()
        self.layers = list(layers)

    def call(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x


def rows(layer: Any, x: Any) -> Any:
    """The layer of a sequence that has one example."""
    return layer(x[None], training=layer.mode)[0]


def attended(layer: Any, x: Any) -> Any:
    return layer(x[None], x[None], training=layer.mode)[0]


def last(layer: Any, x: Any) -> Any:
    """The layer of images, with their channels last."""
    y = layer(keras.ops.transpose(x, [0, 2, 3, 1]), training=layer.mode)
    return keras.ops.transpose(y, [0, 3, 1, 2])


def _conv2d(layer: Layer, train: bool) -> str:
    bias = " + keras.ops.reshape({bias}, [1, -1, 1, 1])" if layer.bias else ""
    padded = "{x}"
    if layer.padding:
        padded = "keras.ops.pad({x}, [[0, 0], [0, 0], [{padding}] * 2, [{padding}] * 2])"
    return (
        f"keras.ops.transpose(keras.ops.conv(keras.ops.transpose({padded}, [0, 2, 3, 1]), "
        "keras.ops.transpose({weight}, [2, 3, 1, 0]), {stride}, 'valid', 'channels_last'), "
        "[0, 3, 1, 2])" + bias
    )


KINDS = {
    "linear": lambda layer, train: (
        "{x} @ keras.ops.transpose({weight})" + (" + {bias}" if layer.bias else "")
    ),
    "conv2d": _conv2d,
    "relu": "keras.ops.relu({x})",
    "dropout": where_drawn("keras.random.dropout({x}, {p}, seed=seeds)"),
    "layer_norm": "keras.ops.layer_normalization({x}, {weight}, {bias}, epsilon=1e-5)",
    "gelu": "keras.ops.gelu({x}, approximate=False)",
    "silu": "keras.ops.silu({x})",
    "tanh": "keras.ops.tanh({x})",
    "sigmoid": "keras.ops.sigmoid({x})",
    "softmax": "keras.ops.softmax({x}, -1)",
    "gaussian_noise": where_drawn("{x} + {p} * keras.random.normal({x}.shape, seed=seeds)"),
    "flatten": "keras.ops.reshape({x}, [{x}.shape[0], -1])",
    "add": "{x} + {y}",
    "mul": "{x} * {y}",
    "concat": "keras.ops.concatenate([{x}, {y}], 1)",
    "split": "keras.ops.split({x}, [{features}], 1)",
    "duplicate": "({x}, {x})",
}

_MODE = "m(x, training=m.mode)"
_CONTEXT = "m(x) if m.mode else m(x, training=False)"


def _rows(name: str, make: str, traits: str = "", call: str = _MODE) -> Module:
    """Layers that draw do so from a SeedGenerator each."""
    return Module(name, "N C -> N C", f"built(keras.layers.{make}, 2, C)", traits, call)


def _sequence(name: str, make: str, traits: str = "", call: str = "rows(m, x)") -> Module:
    return Module(name, "N C -> N C", f"built(keras.layers.{make}, 1, 2, C)", traits, call)


def _images(name: str, make: str, traits: str = "") -> Module:
    made = f"built(keras.layers.{make}, 1, H, W, C)"
    return Module(name, "N C H W -> N C H W", made, traits, "last(m, x)")


MODULES = (
    _rows("dense", "Dense(C, 'gelu')", "parameters"),
    _rows("dropout_layer", "Dropout(0.5)", "draws elsewhere"),
    _rows("gaussian_noise_layer", "GaussianNoise(0.5)", "draws elsewhere"),
    _rows("gaussian_dropout", "GaussianDropout(0.5)", "draws elsewhere"),
    _rows("alpha_dropout", "AlphaDropout(0.5)", "draws elsewhere"),
    _rows("batch_norm_rows", "BatchNormalization()", "parameters, state"),
    _images("batch_norm_images", "BatchNormalization()", "parameters, state"),
    _rows("spectral_norm", "SpectralNormalization(keras.layers.Dense(C))", "parameters, state"),
    _images("conv", "Conv2D(C, 3, padding='same')", "parameters"),
    _images("spatial_dropout", "SpatialDropout2D(0.5)", "draws elsewhere"),
    _images("group_norm", "GroupNormalization(1)", "parameters"),
    _rows("prelu", "PReLU()", "parameters", "m(x)"),
    _sequence("lstm", "LSTM(C, return_sequences=True)", "parameters"),
    _sequence("gru", "GRU(C, return_sequences=True)", "parameters"),
    _sequence(
        "lstm_dropout",
        "LSTM(C, return_sequences=True, dropout=0.5)",
        "parameters, draws elsewhere",
    ),
    Module(
        "attention",
        "N C -> N C",
        "built(keras.layers.MultiHeadAttention(2, C, dropout=0.5), 1, 2, C, operands=2)",
        "parameters, draws elsewhere",
        "attended(m, x)",
    ),
    _rows("unit_norm", "UnitNormalization()", "", "m(x)"),
    Module(
        "block_dropout",
        "N C -> N C",
        "built(Block(keras.layers.Dense(C), keras.layers.Dropout(0.5)), 2, C)",
        "parameters, draws elsewhere",
        _CONTEXT,
    ),
    Module(
        "block_batch_norm",
        "N C -> N C",
        "built(Block(keras.layers.Dense(C), keras.layers.BatchNormalization()), 2, C)",
        "parameters, state",
        _CONTEXT,
    ),
)
SCOPES = {
    "full": "mode='full'",
    "activations": "mode='activations'",
    "larger_than": "mode='larger_than', output_size_threshold=0",
    "list_of_layers": "mode='list_of_layers', layer_names=['segment']",
}


class Keras(Framework):
    versions = {"keras": keras.__version__, "numpy": np.__version__}
    imports = "import keras\n\nseeds = keras.random.SeedGenerator(0)"
    promises = PROMISES
    promise_helpers = (gradients,)
    checkpoint_function = "keras.remat"
    helpers = (Network, scoped, in_layer, whole, value_of, parameters_of, state_of, set_mode)
    helpers += (built, Block, rows, attended, last)
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
        self.name = f"keras {keras.__version__} on {backend}"
        of_backend = of_tensorflow if backend == "tensorflow" else of_torch
        self.helpers += (of_backend,)
        self.differentiator = of_backend.__name__
        self.whole_segments = backend == "tensorflow"
        if not self.whole_segments:
            # PyTorch stops a recomputation at the last tensor that was saved, and what is saved is
            # not seen here.
            self.observed = self.observed - {"executions"}
        if scope:
            self.promises = ()
            self.checkpoint = f"scoped({{function}}, {SCOPES[scope]})({{arguments}})"
        super().__init__()
        self.names["differentiate"] = of_backend

    def array(self, a: np.ndarray) -> Any:
        return keras.ops.convert_to_tensor(a)

    def numpy(self, a: Any) -> np.ndarray:
        return np.array(keras.ops.convert_to_numpy(a))

    def parameter(self, a: np.ndarray, frozen: bool) -> Any:
        return keras.Variable(a, trainable=not frozen)

    def bound(self, module: Any, values: Any) -> list[Any]:
        for variable, value in zip(parameters_of(module), values, strict=True):
            variable.assign(value)
        return parameters_of(module)

    def seed(self, seed: int) -> str:
        return f"keras.utils.set_random_seed({seed}), seeds.state.assign([0, {seed}])"

    def random_state(self) -> bytes:
        return self.numpy(self.names["seeds"].state).tobytes()
