"""Layers in PaddlePaddle: expressions, and the layers of its library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import paddle.nn as nn
from paddle.distributed.fleet.meta_parallel import get_rng_state_tracker

from rematch.case import Layer
from rematch.layers import modules_of


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
    batch_norm_rows | N C -> N C | parameters, state | nn.BatchNorm1D(C)
    batch_norm | N C H W -> N C H W | parameters, state | nn.BatchNorm2D(C)
    instance_norm | N C H W -> N C H W | parameters | nn.InstanceNorm2D(C)
    spectral_norm | N C -> N C | state | nn.SpectralNorm([C, C], power_iters=1)
        | paddle.matmul(x, m(paddle.eye(x.shape[-1])))
    dropout_axis | N C -> N C | draws | nn.Dropout(0.5, axis=1)
    dropout_downscale | N C -> N C | draws | nn.Dropout(0.5, mode='downscale_in_infer')
    dropout2d | N C H W -> N C H W | draws | nn.Dropout2D(0.5)
    alpha_dropout | N C -> N C | draws | nn.AlphaDropout(0.5)
    feature_alpha_dropout | N C H W -> N C H W | draws | nn.FeatureAlphaDropout(0.5)
    rrelu | N C -> N C | draws | nn.RReLU()
    gumbel_softmax | N C -> N C | draws | nn.Identity()
        | (F.gumbel_softmax(m(x)) if m.training else F.softmax(m(x)))
    maxout | N 2C -> N C |  | nn.Identity() | F.maxout(m(x)[:, :, None, None], 2).flatten(1)
    lstm | N C -> N C | parameters | nn.LSTM(C, C) | m(x[:, None])[0][:, 0]
    gru | N C -> N C | parameters | nn.GRU(C, C) | m(x[None])[0][0]
    rnn_dropout | N C -> N C | parameters, draws | nn.SimpleRNN(C, C, 2, dropout=0.5)
        | m(x[None])[0][0]
    attention | N 2C -> N 2C | parameters, draws | nn.MultiHeadAttention(2 * C, 2, dropout=0.5)
        | m(x[None])[0]
    transformer_layer | N 2C -> N 2C | parameters, draws
        | nn.TransformerEncoderLayer(2 * C, 2, 8, 0.25) | m(x[None])[0]
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
