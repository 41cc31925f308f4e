"""The layers of models in Keras, and those of its library."""

from __future__ import annotations

from typing import Any

import keras

from rematch.case import Layer
from rematch.layers import Module, where_drawn


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


def padded(x: Any, count: int) -> Any:
    """Images with zeros around them. In XLA the gradient of keras.ops.pad() needs a pass that also
    rounds."""
    for axis in (2, 3):
        shape = [count if i == axis else extent for i, extent in enumerate(x.shape)]
        zeros = keras.ops.zeros(shape, x.dtype)
        x = keras.ops.concatenate([zeros, x, zeros], axis)
    return x


def _conv2d(layer: Layer, train: bool) -> str:
    bias = " + keras.ops.reshape({bias}, [1, -1, 1, 1])" if layer.bias else ""
    operand = "padded({x}, {padding})" if layer.padding else "{x}"
    return (
        f"keras.ops.transpose(keras.ops.conv(keras.ops.transpose({operand}, [0, 2, 3, 1]), "
        "keras.ops.transpose({weight}, [2, 3, 1, 0]), {stride}, 'valid', 'channels_last'), "
        "[0, 3, 1, 2])" + bias
    )


KINDS = {
    "linear": lambda layer, train: "{x} @ keras.ops.transpose({weight})" + (" + {bias}" if layer.bias else ""),
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
    _sequence("lstm_dropout", "LSTM(C, return_sequences=True, dropout=0.5)", "parameters, draws elsewhere"),
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

HELPERS = (built, Block, rows, attended, last, padded)
