"""Expressions by which PyTorch computes each kind of layer, in runs and in scripts;
properties/layers/ says what a kind computes."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from rematch.frameworks.pytorch.functions import FUNCTIONS
from rematch.subjects.adapter_layers import OUTPUTS, Template
from rematch.subjects.case import Layer
from rematch.subjects.protocol import Unsupported


class Dense(torch.autograd.Function):
    """Its operand, whose gradient becomes dense. A slice of a gradient is strided in the plain run
    and dense behind the border of a reentrant segment, and kernels add the two in other orders."""

    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        return gradient.contiguous()


def both_dense(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Two operands likewise. What is named last hands on its gradient first, as it would without
    other names."""
    second = Dense.apply(y)
    return Dense.apply(x), second


def call(name: str, *arguments: str) -> str:
    """The text of a call; empty arguments are left out."""
    return f"{name}({', '.join(a for a in arguments if a)})"


def window(layer: Layer) -> list[str]:
    """The stride and the padding where they are not the usual ones."""
    stride = f"stride={layer.stride}" if layer.stride != 1 else ""
    return [stride, f"padding={layer.padding}" if layer.padding else ""]


def _pool(layer: Layer, train: bool) -> str:
    stride = "" if layer.stride == layer.kernel else f"stride={layer.stride}"
    padding = f"padding={layer.padding}" if layer.padding else ""
    return call(f"F.{layer.kind}", "{x}", "{kernel}", stride, padding)


def draws(layer: Layer, train: bool) -> bool:
    """Whether the layer draws random numbers in a model that trains or does not."""
    train = layer.trains(train)
    if layer.kind == "custom":
        return train and "draws" in layer.layer.rpartition(";")[2]
    return train and (layer.kind == "rrelu" or (layer.kind in RANDOM and layer.p > 0))


def _dropout(layer: Layer, train: bool) -> str:
    # A dropout that does nothing hands on its operand, as the reference does, not another view of it.
    return call("F.dropout", "{x}", "" if layer.p == 0.5 else "p={p}") if train else "{x}"


def _attention(layer: Layer, train: bool) -> str:
    given = {"causal": layer.causal, "fused": layer.fused, "p": layer.p if train else 0}
    options = [f"{name}={value}" for name, value in given.items() if value]
    return call("attention", "{both}", "{heads}", *options)


def _moe(layer: Layer, train: bool) -> str:
    jitter = ", jitter={p}" if layer.p and train else ""
    return "moe({x}, {weights}, {buffers}, top={top}" + jitter + "{eval})"


def _depth(layer: Layer, train: bool) -> str:
    p = "" if layer.p == 0.5 else "p={p}"
    return call("stochastic_depth", "{alias}", "{weights}", p if train else "training=False")


KINDS: dict[str, Template] = {
    "embedding": "F.embedding({x}, {weights})",
    "linear": "F.linear({x}, {weights})",
    "conv2d": lambda layer, train: call("F.conv2d", "{x}", "{weights}", *window(layer)),
    "max_pool2d": _pool,
    "avg_pool2d": _pool,
    "batch_norm": "F.batch_norm({x}, {buffers}, {weights}{training})",
    "layer_norm": "F.layer_norm({x}, {width}, {weights})",
    # nn.functional refuses groups of one value; the operator does not, nor does the reference.
    "group_norm": "torch.group_norm({x}, {groups}, {weights})",
    "rms_norm": "F.rms_norm({alias}, {width}, {weights}, 1e-5)",
    "relu": lambda layer, train: f"torch.relu{'_' if layer.in_place else ''}({{x}})",
    "gelu": "F.gelu({x})",
    "silu": "F.silu({x})",
    "tanh": "torch.tanh({x})",
    "sigmoid": "torch.sigmoid({x})",
    "softmax": "torch.softmax({x}, -1)",
    "dropout": _dropout,
    "gaussian_noise": lambda layer, train: "{x} + {p} * torch.randn_like({x})" if train else "{x}",
    "rrelu": lambda layer, train: "F.rrelu({x}, training=True)" if train else "F.leaky_relu({x}, (1 / 8 + 1 / 3) / 2)",
    "delayed_scaling": lambda layer, train: (
        f"delayed_{'float8' if layer.fp8 else 'scaling'}({{wide}}, {{buffers}}{{eval}})"
    ),
    # States and the gradient are transposes, of which later layers would save copies.
    "gru": "gru({dense_wide}, [{weights}]{eval}){contiguous}",
    "lstm": "lstm({dense_wide}, [{weights}]{eval}){contiguous}",
    "spectral_norm": "spectral_norm({x}, {buffers}, {weights}{eval})",
    # Gradients of slices and of heads are strided.
    "kv_cache": "kv_cache({dense}, {buffers}{eval})",
    "rotary": "rotary({dense}, {features}, {heads})",
    "attention": _attention,
    "hooked": "hooked({x}, {p})",
    "flatten": "{flat}",
    "add": "{x} + {y}",
    "mul": "{x} * {y}",
    "moe": _moe,
    "stochastic_depth": _depth,
    "early_exit": "early_exit({alias}, {weights})",
    "concat": "torch.cat([{both}], {axis})",
    # Copies, as the reference makes them: what a layer saves is then of the size of its operand.
    "split": "torch.split_with_sizes_copy({x}, ({features}, {x}.shape[{axis}] - {features}), {axis})",
    "duplicate": "{x}, {x}",
}
"""Expressions of the operands `{x}` and `{y}`, of parameters and buffers, and of the layer's fields.
Some read an operand several times, or make gradients that are strided: in runs, where all are added
up must not depend on where a segment ends, so `{alias}` is another name for x, `{dense}` one whose
gradient is dense, and `{both}` are x and y so; scripts show x and y."""

FROM_GENERATOR = {
    "dropout": "{x} * torch.bernoulli(torch.full_like({x}, {keep}), generator={generator}) / {keep}",
    "gaussian_noise": "{x} + {p} * torch.randn({x}.shape, dtype={x}.dtype, generator={generator})",
    "rrelu": "torch.ops.aten.rrelu_with_noise({x}, torch.empty_like({x}), 1 / 8, 1 / 3, True, {generator})",
}
"""Layers that draw from a generator of their own, beside PyTorch's default one."""

RANDOM = ("dropout", "rrelu", "gaussian_noise", "attention", "moe", "stochastic_depth")


def expression(layer: Layer, train: bool, words: Mapping[str, str], native: bool = False) -> str:
    """The expression of a layer, with `words` for its operands, parameters and buffers. `native`:
    dropout is one operator, as on GPUs: a policy can keep its result and its mask. On the CPU
    nn.Dropout writes into its mask, which a policy cannot keep."""
    kind, drawn = layer.kind, draws(layer, train)
    train = layer.trains(train)
    if layer.stream and drawn and kind not in FROM_GENERATOR:
        raise Unsupported(f"{kind} that draws from another generator than the default one")
    if kind in FROM_GENERATOR and (not drawn or layer.stream):
        template: Template = FROM_GENERATOR[kind] if drawn else KINDS[kind]
        train = drawn
    elif kind == "dropout" and native:
        template = "torch.native_dropout({x}, {p}, True)[0]"
    else:
        template = KINDS[kind]
    text = template if isinstance(template, str) else template(layer, train)
    training = {"eval": "" if train else ", training=False"}
    training["training"] = ", training=True" if train else ""
    return text.format_map({**vars(layer), "keep": 1 - layer.p, **training, **words})


@lru_cache(maxsize=4096)
def compiled(text: str, names: str) -> Callable[..., Any]:
    """The function of these names that computes an expression."""
    return eval(f"lambda {names}: {text}", globals() | {f.__name__: f for f in FUNCTIONS})


@lru_cache(maxsize=4096)
def function_of(
    layer: Layer, train: bool, weights: int, buffers: int, rank: int, native: bool = False
) -> Callable[..., Any]:
    """The layer as a function of its operands, a generator, and so many parameters and buffers; it
    returns a tuple. `rank`: how many dimensions the operand has."""
    w, b = ([f"{letter}{i}" for i in range(n)] for letter, n in (("w", weights), ("b", buffers)))
    words = {
        "x": "x",
        "y": "y",
        "alias": "x.view_as(x)",
        "dense": "Dense.apply(x)",
        "both": "*both_dense(x, y)",
        # Beside weights of another dtype functions refuse bfloat16, or would let it stay so.
        "wide": "x.to(b0.dtype)",
        "dense_wide": "Dense.apply(x.to(w0.dtype))",
        "contiguous": ".contiguous()",
        "flat": "x" if rank == 2 else "x.flatten(1)",
        "width": "w0.shape",
        "axis": "2" if rank == 3 else "1",
        "weights": ", ".join(w),
        "buffers": ", ".join(b),
        "generator": "generator",
    }
    text = expression(layer, train, words, native)
    one = layer.kind not in OUTPUTS
    operands = ["x", "y"] if layer.operands else ["x"]
    return compiled(f"({text},)" if one else f"({text})", ", ".join([*operands, "generator", *w, *b]))


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
