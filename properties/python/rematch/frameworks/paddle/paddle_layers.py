"""Layers in PaddlePaddle: expressions, and the layers of its library."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import paddle.nn as nn
from paddle.distributed.fleet.meta_parallel import get_rng_state_tracker

from rematch.subjects.adapter_layers import modules_of
from rematch.subjects.case import Layer
from rematch.subjects.library import Library


def from_stream(stream: int, draw: Any) -> Any:
    with get_rng_state_tracker().rng_state(str(stream)):
        return draw()


def twice(x: Any, y: Any) -> Any:
    """Where both are one, what comes back to them is added up here in every run, and not here or
    at the border of a segment."""
    return (x, y) if x is not y else (x.clone(),) * 2


def add(x: Any, y: Any) -> Any:
    x, y = twice(x, y)
    return x + y


def mul(x: Any, y: Any) -> Any:
    x, y = twice(x, y)
    return x * y


def concat(x: Any, y: Any, axis: int) -> Any:
    return paddle.concat(twice(x, y), axis)


class Jitter(nn.Layer):
    """With a random generator that neither Paddle nor NumPy knows of."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = np.random.default_rng(0)

    def forward(self, x: Any) -> Any:
        return x * float(self.generator.random()) if self.training else x


def floats(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [part for v in value if v is not None for part in floats(v)]
    return [value.flatten()] if value.dtype in (paddle.float32, paddle.float64) else []


def fit(value: Any, *shape: int) -> Any:
    """Returns the numbers of `value` in this shape: repeated if too few, averaged if too many."""
    numbers, size = paddle.concat(floats(value)), math.prod(shape)
    whole = size * -(-numbers.shape[0] // size)
    return paddle.concat([numbers] * -(-whole // numbers.shape[0]))[:whole].reshape([-1, size]).mean(0).reshape(shape)


def _linear(layer: Layer, train: bool) -> str:
    return "paddle.matmul({x}, {weight}, transpose_y=True)" + (" + {bias}" if layer.bias else "")


def _conv2d(layer: Layer, train: bool) -> str:
    bias = "{bias}" if layer.bias else "None"
    return f"F.conv2d({{x}}, {{weight}}, {bias}, {{stride}}, {{padding}})"


def _drawing(expression: str) -> Callable[[Layer, bool], str]:
    def write(layer: Layer, train: bool) -> str:
        if not train or layer.p == 0:
            return "{x}"
        if layer.stream:
            return f"from_stream({layer.stream}, lambda: {expression})"
        return expression

    return write


KINDS = {
    "embedding": "F.embedding({x}, {weight})",
    "linear": _linear,
    "conv2d": _conv2d,
    "relu": lambda layer, train: "F.relu_({x})" if layer.in_place else "F.relu({x})",
    "max_pool2d": "F.max_pool2d({x}, {kernel}, {stride}, {padding})",
    "avg_pool2d": "F.avg_pool2d({x}, {kernel}, {stride}, {padding}, exclusive=False)",
    "layer_norm": "F.layer_norm({x}, {weight}.shape, {weight}, {bias})",
    "group_norm": "F.group_norm({x}, {groups}, 1e-5, {weight}, {bias})",
    "gelu": "F.gelu({x})",
    "silu": "F.silu({x})",
    "tanh": "paddle.tanh({x})",
    "sigmoid": "F.sigmoid({x})",
    "softmax": "F.softmax({x}, -1)",
    "dropout": _drawing("F.dropout({x}, {p})"),
    "gaussian_noise": _drawing("{x} + {p} * paddle.randn({x}.shape, {x}.dtype)"),
    "flatten": "({x} if {x}.ndim == 2 else {x}.flatten(1))",
    "add": "add({x}, {y})",
    "mul": "mul({x}, {y})",
    "concat": "concat({x}, {y}, {axis})",
    "split": "paddle.split({x}, [{features}, -1], {axis})",
    "duplicate": "({x}, {x})",
}

MODULES = modules_of(
    """
    spectral_norm | N C -> N C | state | nn.SpectralNorm([C, C], power_iters=1)
        | paddle.matmul(x, m(paddle.eye(x.shape[-1])))
    rnn_dropout | N C -> N C | parameters, draws | nn.SimpleRNN(C, C, 2, dropout=0.5)
        | m(x[None])[0][0]
    gumbel_softmax | N C -> N C | draws | nn.Identity()
        | (F.gumbel_softmax(m(x)) if m.training else F.softmax(m(x)))
    transformer_in_place | N C -> N C | parameters, draws | nn.Linear(C, C)
        | F.dropout(F.relu_(m(x)), 0.5, training=m.training)
    fused_dropout_add | N C -> N C | draws | inn.FusedDropoutAdd(0.5) | m(x, x * 0.5)
    numpy_noise | N C -> N C | draws elsewhere | nn.Identity()
        | m(x) * paddle.to_tensor(np.random.rand(*x.shape), x.dtype)
    numpy_generator | N C -> N C | draws elsewhere | Jitter()
    layer_drop | N C -> N C | parameters, draws elsewhere | nn.Linear(C, C)
        | (x + m(x) * float(random.random() < 0.5) if m.training else x + m(x))
    """
)
LIBRARY = Library(
    "nn",
    "nn.Layer",
    ("paddle",),
    entry="forward",
    number="paddle.to_tensor({array}, x.dtype)",
    values={
        **{"cell": "nn.LSTMCell(4, 4)", "cell_fw": "nn.GRUCell(4, 4)", "cell_bw": "nn.GRUCell(4, 4)"},
        **{"encoder_layer": "nn.TransformerEncoderLayer(4, 2, 8, 0.25)", "weight_shape": "[2, 4]"},
        **{
            "decoder_layer": "nn.TransformerDecoderLayer(4, 2, 8, 0.25)",
            "Sequential.layers": "nn.Linear(4, 4), nn.ReLU()",
        },
        **{"output_sizes": "[3, 3]", "kernel_sizes": "2", "upscale_factor": "2", "downscale_factor": "2"},
        **{f"{kind}.num_layers": "2" for kind in ("SimpleRNN", "LSTM", "GRU")},
        **{f"Upsampl{kind}.scale_factor": "2" for kind in ("e", "ingBilinear2D", "ingNearest2D")},
        **{"BatchNorm.dtype": "paddle.get_default_dtype()"},
        **{"Unflatten.shape": "[2, 2]", "Fold.kernel_sizes": "1", "Fold.output_sizes": "[2, 2]"},
        **{f"Transformer.num_{part}coder_layers": "1" for part in ("en", "de")},
        **{"Transformer.d_model": "4", "Transformer.nhead": "2", "Transformer.dim_feedforward": "8"},
    },
    shapes=((2, 4), (2, 3, 4), (2, 4, 4), (2, 4, 4, 4), (2, 4, 4, 4, 4)),
    most=4,
)
