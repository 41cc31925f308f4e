"""The layers of models in Keras, and those of its library."""

import math
from typing import Any

import keras

from rematch.subjects.adapter_layers import Module, where_drawn
from rematch.subjects.case import Layer
from rematch.subjects.library import SHAPES


def built(layer: Any, call: Any) -> Any:
    """The layer with its weights."""
    call(layer, keras.ops.ones((2, 4)))
    return layer


def floats(value: Any) -> list[Any]:
    parts = [part for part in keras.tree.flatten(value) if part is not None]
    parts = [part for part in parts if keras.backend.is_float_dtype(keras.backend.standardize_dtype(part.dtype))]
    return [keras.ops.reshape(part, [-1]) for part in parts]


def fit(value: Any, *shape: int) -> Any:
    """Returns the numbers of `value` in this shape: repeated if too few, averaged if too many."""
    numbers, size = keras.ops.concatenate(floats(value)), math.prod(shape)
    whole = size * -(-numbers.shape[0] // size)
    copies = keras.ops.concatenate([numbers] * -(-whole // numbers.shape[0]))[:whole]
    return keras.ops.reshape(keras.ops.mean(keras.ops.reshape(copies, [-1, size]), 0), shape)


class Block(keras.layers.Layer):
    """A layer of layers, which take their mode from the call that they are part of."""

    def __init__(self, *layers: Any):
        super().__init__()
        self.layers = list(layers)

    def call(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x


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


def _block(name: str, layer: str, traits: str) -> Module:
    """A layer that draws does so from a SeedGenerator of its own."""
    make = f"built(Block(keras.layers.Dense(C), keras.layers.{layer}), lambda m, x: m(keras.ops.ones((2, C))))"
    return Module(name, "N C -> N C", make, traits, "m(x) if m.mode else m(x, training=False)")


MODULES = (
    _block("block_dropout", "Dropout(0.5)", "parameters, draws elsewhere"),
    _block("block_batch_norm", "BatchNormalization()", "parameters, state"),
)


def _sample(make: str, traits: str = "", shape: str = "2, 4", mode: str = ", training=m.mode") -> Module:
    name = f"keras.layers.{make.partition('(')[0]}.0"
    made = f"built(keras.layers.{make}, lambda m, x: m(fit(x, {shape})))"
    return Module(name, SHAPES, made, traits, f"fit(m(fit(x, {shape}){mode}), *x.shape)")


_SEQUENCE, _IMAGES = "2, 3, 4", "2, 4, 4, 4"
SAMPLES = (
    _sample("Dense(4, 'gelu')", "parameters"),
    _sample("Dropout(0.5)", "draws elsewhere"),
    _sample("GaussianNoise(0.5)", "draws elsewhere"),
    _sample("GaussianDropout(0.5)", "draws elsewhere"),
    _sample("AlphaDropout(0.5)", "draws elsewhere"),
    _sample("SpatialDropout2D(0.5)", "draws elsewhere", _IMAGES),
    _sample("BatchNormalization()", "parameters, state"),
    _sample("SpectralNormalization(keras.layers.Dense(4))", "parameters, state"),
    _sample("GroupNormalization(2)", "parameters", _IMAGES, mode=""),
    _sample("LayerNormalization()", "parameters", _SEQUENCE, mode=""),
    _sample("UnitNormalization()", mode=""),
    _sample("PReLU()", "parameters", mode=""),
    _sample("GRU(4)", "parameters", _SEQUENCE),
    _sample("LSTM(4, dropout=0.25)", "parameters, draws elsewhere", _SEQUENCE),
    _sample("Bidirectional(keras.layers.LSTM(4))", "parameters", _SEQUENCE),
)
"""Layers of the library on backends that compile each, so that to try all of them takes minutes."""
VALUES = {
    **{"layer": "keras.layers.Dense(4)", "cell": "keras.layers.LSTMCell(4)", "cells": "[keras.layers.GRUCell(4)]"},
    **{"Bidirectional.layer": "keras.layers.LSTM(4)", "GroupNormalization.groups": "2", "equation": "'...a,ab->...b'"},
    **{"Activation.activation": "'gelu'", "function": "keras.ops.tanh", "Permute.dims": "(2, 1)", "scale": "2.0"},
    **{"Reshape.target_shape": "(-1,)", "Normalization.mean": "0.5", "Normalization.variance": "2.0"},
    **{"EinsumDense.output_shape": "4", "factor": "0.5", "height_factor": "0.5", "width_factor": "0.5"},
}
"""What parameters of layers get."""

HELPERS = (built, Block, floats, fit, padded)
