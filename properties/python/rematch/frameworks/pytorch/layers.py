"""How PyTorch runs each kind of layer; properties/layers/ says what a kind computes.

Every function takes a layer, its operands, its parameters and buffers in the order of the model,
and whether the model trains, and returns the outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from rematch.case import Layer
from rematch.frameworks.pytorch.attention import attention
from rematch.frameworks.pytorch.delayed_scaling import delayed_float8, delayed_scaling
from rematch.frameworks.pytorch.early_exit import early_exit
from rematch.frameworks.pytorch.hooked import hooked
from rematch.frameworks.pytorch.kv_cache import kv_cache
from rematch.frameworks.pytorch.moe import moe
from rematch.frameworks.pytorch.recurrent import gru, lstm
from rematch.frameworks.pytorch.rotary import rotary
from rematch.frameworks.pytorch.spectral_norm import spectral_norm
from rematch.frameworks.pytorch.stochastic_depth import stochastic_depth
from rematch.protocol import Unsupported

Tensors = Sequence[Tensor]
Run = Callable[[Layer, Tensors, Tensors, Tensors, bool], Tensors]

EPS = 1e-5
"""Added to the variance by every norm."""


def _embedding(layer: Layer, x: Tensors, w: Tensors, buffers: Tensors, train: bool) -> Tensors:
    return (F.embedding(x[0], w[0]),)


def _linear(layer: Layer, x: Tensors, weights: Tensors, buffers: Tensors, train: bool) -> Tensors:
    return (F.linear(x[0], *weights),)


def _conv2d(layer: Layer, x: Tensors, weights: Tensors, buffers: Tensors, train: bool) -> Tensors:
    bias = weights[1] if layer.bias else None
    return (F.conv2d(x[0], weights[0], bias, layer.stride, layer.padding),)


def _max_pool(layer: Layer, x: Tensors, weights: Tensors, buffers: Tensors, train: bool) -> Tensors:
    return (F.max_pool2d(x[0], layer.kernel, layer.stride, layer.padding),)


def _avg_pool(layer: Layer, x: Tensors, weights: Tensors, buffers: Tensors, train: bool) -> Tensors:
    return (F.avg_pool2d(x[0], layer.kernel, layer.stride, layer.padding),)


def _batch_norm(layer: Layer, x: Tensors, w: Tensors, buffers: Tensors, train: bool) -> Tensors:
    return (F.batch_norm(x[0], buffers[0], buffers[1], w[0], w[1], train, 0.1, EPS),)


def _layer_norm(layer: Layer, x: Tensors, w: Tensors, buffers: Tensors, train: bool) -> Tensors:
    return (F.layer_norm(x[0], w[0].shape, w[0], w[1], EPS),)


def _group_norm(layer: Layer, x: Tensors, w: Tensors, buffers: Tensors, train: bool) -> Tensors:
    # nn.functional refuses groups of one value; the operator does not, nor does the reference.
    return (torch.group_norm(x[0], layer.groups, w[0], w[1], EPS),)


def _rms_norm(layer: Layer, x: Tensors, w: Tensors, buffers: Tensors, train: bool) -> Tensors:
    # Several operators read x. By another name for it their gradients are added up here in every
    # run, and not here or at the border of a segment.
    return (F.rms_norm(x[0].view_as(x[0]), w[0].shape, w[0], EPS),)


def _relu(layer: Layer, x: Tensors, weights: Tensors, buffers: Tensors, train: bool) -> Tensors:
    return (torch.relu_(x[0]) if layer.in_place else torch.relu(x[0]),)


def _rrelu(layer: Layer, x: Tensors, weights: Tensors, buffers: Tensors, train: bool) -> Tensors:
    if not train:
        return (F.leaky_relu(x[0], (1 / 8 + 1 / 3) / 2),)
    return (F.rrelu(x[0], 1 / 8, 1 / 3, training=True),)


def _dropout(layer: Layer, x: Tensors, weights: Tensors, buffers: Tensors, train: bool) -> Tensors:
    # What does nothing hands on its operand, as the reference does, not another view of it.
    return (F.dropout(x[0], layer.p) if train and layer.p > 0 else x[0],)


def _noise(layer: Layer, x: Tensors, weights: Tensors, buffers: Tensors, train: bool) -> Tensors:
    if not train or layer.p == 0:
        return (x[0],)
    return (x[0] + layer.p * torch.randn_like(x[0]),)


def _flatten(layer: Layer, x: Tensors, weights: Tensors, buffers: Tensors, train: bool) -> Tensors:
    return (x[0] if x[0].dim() == 2 else x[0].flatten(1),)


class Dense(torch.autograd.Function):
    """Its operand, whose gradient becomes dense. A slice of a gradient is strided in the plain run
    and dense behind the border of a reentrant segment, and kernels add the two in other orders."""

    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        return gradient.contiguous()


def features_dimension(x: Tensor) -> int:
    """The last one of sequences, the second of images and rows."""
    return 2 if x.dim() == 3 else 1


def _concat(layer: Layer, x: Tensors, weights: Tensors, buffers: Tensors, train: bool) -> Tensors:
    # What is named last hands on its gradient first, as it would without other names.
    second = Dense.apply(x[1])
    return (torch.cat((Dense.apply(x[0]), second), features_dimension(second)),)


def _split(layer: Layer, x: Tensors, weights: Tensors, buffers: Tensors, train: bool) -> Tensors:
    # Copies, as the reference makes them: what a layer saves is then of the size of its operand.
    dimension = features_dimension(x[0])
    parts = [layer.features, x[0].shape[dimension] - layer.features]
    return torch.split_with_sizes_copy(x[0], parts, dimension)


def _scaled(layer: Layer, x: Tensors, weights: Tensors, buffers: Tensors, train: bool) -> Tensors:
    # bfloat16 would stay as it is.
    operand = x[0].to(buffers[0].dtype)
    scaled = delayed_float8 if layer.fp8 else delayed_scaling
    return (scaled(operand, buffers[0], train),)


def _rotary(layer: Layer, x: Tensors, w: Tensors, buffers: Tensors, train: bool) -> Tensors:
    # Gradients of slices are strided.
    return (rotary(Dense.apply(x[0]), layer.features, layer.heads),)


def _recurrent(function: Callable[..., Tensor]) -> Run:
    def run(layer: Layer, x: Tensors, w: Tensors, buffers: Tensors, train: bool) -> Tensors:
        # The function refuses bfloat16 beside weights of another dtype. States and the gradient are
        # transposes, of which later layers would save copies.
        y = function(Dense.apply(x[0].to(w[0].dtype)), list(w), train)
        return (y.contiguous(),)

    return run


def _spectral(layer: Layer, x: Tensors, w: Tensors, buffers: Tensors, train: bool) -> Tensors:
    return (spectral_norm(x[0], *buffers, *w, training=train),)


def _cached(layer: Layer, x: Tensors, w: Tensors, buffers: Tensors, train: bool) -> Tensors:
    # The gradient is a slice.
    return (kv_cache(Dense.apply(x[0]), buffers[0], train),)


def _attention(layer: Layer, x: Tensors, w: Tensors, buffers: Tensors, train: bool) -> Tensors:
    p = layer.p if train else 0.0
    if layer.stream and p > 0:
        raise Unsupported("attention that draws from another generator than the default one")
    # Gradients of heads are strided. What is named last, the queries, hands on its gradient first,
    # as it would without other names.
    memory = Dense.apply(x[1])
    return (attention(Dense.apply(x[0]), memory, layer.heads, layer.causal, layer.fused, p),)


def _moe(layer: Layer, x: Tensors, w: Tensors, buffers: Tensors, train: bool) -> Tensors:
    if layer.stream and train and layer.p > 0:
        raise Unsupported("routing that draws from another generator than the default one")
    return (moe(x[0], w[0], w[1], buffers[0], layer.top, layer.p, train),)


def _depth(layer: Layer, x: Tensors, w: Tensors, buffers: Tensors, train: bool) -> Tensors:
    if layer.stream and train and layer.p > 0:
        raise Unsupported("samples that another generator than the default one draws")
    # As in _rms_norm().
    return (stochastic_depth(x[0].view_as(x[0]), w[0], layer.p, train),)


def _exits(layer: Layer, x: Tensors, w: Tensors, buffers: Tensors, train: bool) -> Tensors:
    # As in _rms_norm().
    return (early_exit(x[0].view_as(x[0]), w[0]),)


def _pointwise(function: Callable[[Tensor], Tensor]) -> Run:
    return lambda layer, x, weights, buffers, train: (function(x[0]),)


LAYERS: dict[str, Run] = {
    "embedding": _embedding,
    "linear": _linear,
    "conv2d": _conv2d,
    "max_pool2d": _max_pool,
    "avg_pool2d": _avg_pool,
    "batch_norm": _batch_norm,
    "layer_norm": _layer_norm,
    "group_norm": _group_norm,
    "rms_norm": _rms_norm,
    "relu": _relu,
    "gelu": _pointwise(F.gelu),
    "silu": _pointwise(F.silu),
    "tanh": _pointwise(torch.tanh),
    "sigmoid": _pointwise(torch.sigmoid),
    "softmax": _pointwise(lambda x: torch.softmax(x, -1)),
    "dropout": _dropout,
    "delayed_scaling": _scaled,
    "gru": _recurrent(gru),
    "lstm": _recurrent(lstm),
    "spectral_norm": _spectral,
    "kv_cache": _cached,
    "hooked": lambda layer, x, weights, buffers, train: (hooked(x[0], layer.p),),
    "rotary": _rotary,
    "rrelu": _rrelu,
    "gaussian_noise": _noise,
    "flatten": _flatten,
    "add": lambda layer, x, weights, buffers, train: (x[0] + x[1],),
    "mul": lambda layer, x, weights, buffers, train: (x[0] * x[1],),
    "attention": _attention,
    "moe": _moe,
    "stochastic_depth": _depth,
    "early_exit": _exits,
    "concat": _concat,
    "split": _split,
    "duplicate": lambda layer, x, weights, buffers, train: (x[0], x[0]),
}


OUTPUTS = {"split": 2, "duplicate": 2}
"""How many outputs kinds have that have not one."""


def native_dropout(
    layer: Layer, x: Tensors, weights: Tensors, buffers: Tensors, train: bool
) -> Tensors:
    """Dropout as one operator, as GPUs have it: a policy can keep its result and its mask. On the
    CPU nn.Dropout writes into its mask, which a policy cannot keep."""
    if not train or layer.p == 0:
        return (x[0],)
    return (torch.native_dropout(x[0], layer.p, True)[0],)


def ops_of(layer: Layer, train: bool) -> tuple[str, ...]:
    """The names by which policies know what the layer computes; see Layer::ops in C++."""
    train = layer.trains(train)
    if layer.kind in ("flatten", "duplicate") or (layer.kind == "relu" and layer.in_place):
        return ()
    if layer.kind in ("dropout", "gaussian_noise"):
        return (layer.kind,) if train and layer.p > 0 else ()
    if layer.kind == "rrelu" and not train:
        return ("leaky_relu",)
    return (layer.kind,)


def rows(output: Tensor) -> Tensor:
    """An output of the model as a loss takes it: [rows, columns]."""
    return output if output.dim() == 2 else output.flatten(1)


def mean_square(outputs: Tensor) -> Tensor:
    """The auxiliary loss of a further output; a scalar."""
    return loss_of("mse", outputs, torch.zeros_like(outputs, dtype=_wide(outputs)))


def _wide(t: Tensor) -> torch.dtype:
    return torch.float32 if t.dtype == torch.bfloat16 else t.dtype


def loss_of(kind: str, outputs: Tensor, target: Tensor) -> Tensor:
    """The mean squared error, or the mean cross-entropy of rows of logits; a scalar.

    outputs: [rows, columns]; target: the same shape, or int64 [rows], a class for each.
    """
    outputs = outputs.to(_wide(outputs))
    if kind == "mse":
        return F.mse_loss(outputs, target)
    # F.cross_entropy() saves a weight beside its logarithms; this saves those only.
    return F.log_softmax(outputs, 1).gather(1, target[:, None]).mean().neg()
