"""MLX: `mx.checkpoint()` of functions that take their parameters, as `nn.utils.checkpoint()` and
mlx-lm call it."""

import argparse
import math
from importlib.metadata import version
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten, tree_unflatten

from rematch.frameworks.mlx.promises import PROMISES, gradients
from rematch.subjects.adapter_layers import Module, where_drawn
from rematch.subjects.case import Layer
from rematch.subjects.framework import COMMON, SEEN, Framework
from rematch.subjects.library import Library


def bound(module: Any, parameters: Any) -> Any:
    """The module with other values for what it trains."""
    names = [name for name, _ in tree_flatten(module.trainable_parameters())]
    module.update(tree_unflatten(list(zip(names, parameters, strict=True))))
    return module


def dense(x: Any) -> Any:
    # A gradient comes out of a segment in another layout, and a sum over it in another order.
    same = mx.custom_function(lambda x: x)
    same.vjp(lambda primals, cotangent, output: mx.contiguous(cotangent))
    return same(x)


def differentiate(objective: Any, arguments: Any, trained: Any) -> Any:
    if not trained:
        loss, outputs = objective(*arguments)
        return loss, outputs, []
    (loss, outputs), gradients = mx.value_and_grad(objective, argnums=trained)(*arguments)
    # A single number gives a gradient that is not in a list.
    gradients = [gradients] if len(trained) == 1 else gradients
    mx.eval(loss, outputs, gradients)
    return loss, outputs, gradients


def floats(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [part for v in value for part in floats(v)]
    return [value.reshape(-1)] if mx.issubdtype(value.dtype, mx.floating) else []


def fit(value: Any, *shape: int) -> Any:
    """Its numbers in that shape: again and again, or means of them."""
    numbers, size = mx.concatenate(floats(value)), math.prod(shape)
    whole = size * -(-numbers.size // size)
    return mx.concatenate([numbers] * -(-whole // numbers.size))[:whole].reshape(-1, size).mean(0).reshape(shape)


def parameters_of(m: Any) -> list[Any]:
    return [value for _, value in tree_flatten(m.trainable_parameters())]


def state_of(m: Any) -> list[Any]:
    trained = [name for name, _ in tree_flatten(m.trainable_parameters())]
    return [value for name, value in tree_flatten(m.parameters()) if name not in trained]


def set_mode(m: Any, train: bool) -> None:
    m.train(train)


def _conv2d(layer: Layer, train: bool) -> str:
    bias = " + {bias}.reshape(1, -1, 1, 1)" if layer.bias else ""
    return (
        "dense(mx.conv2d({x}.transpose(0, 2, 3, 1), {weight}.transpose(0, 2, 3, 1), "
        "{stride}, {padding})"
        ".transpose(0, 3, 1, 2)" + bias + ")"
    )


def _pool(name: str) -> str:
    return f"nn.{name}({{kernel}}, {{stride}}, {{padding}})({{x}}.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)"


KINDS = {
    "embedding": "{weight}[{x}]",
    "linear": lambda layer, train: "{x} @ {weight}.T" + (" + {bias}" if layer.bias else ""),
    "conv2d": _conv2d,
    "relu": "nn.relu({x})",
    "max_pool2d": _pool("MaxPool2d"),
    "avg_pool2d": _pool("AvgPool2d"),
    "dropout": where_drawn("nn.Dropout({p})({x})"),
    "layer_norm": "mx.fast.layer_norm({x}, {weight}, {bias}, 1e-5)",
    "rms_norm": "mx.fast.rms_norm({x}, {weight}, 1e-5)",
    "gelu": "nn.gelu({x})",
    "silu": "nn.silu({x})",
    "tanh": "mx.tanh({x})",
    "sigmoid": "mx.sigmoid({x})",
    "softmax": "mx.softmax({x}, -1)",
    "gaussian_noise": where_drawn("{x} + {p} * mx.random.normal({x}.shape)"),
    "flatten": "mx.flatten({x}, 1)",
    "add": "{x} + {y}",
    "mul": "{x} * {y}",
    "concat": "mx.concatenate([{x}, {y}], {axis})",
    "split": "mx.split({x}, [{features}], {axis})",
    "duplicate": "({x}, {x})",
}

MODULES = (
    Module(
        "drop_path",
        "N C -> N C",
        "nn.Linear(C, C)",
        "parameters, draws",
        "(x + m(x) * mx.random.bernoulli(0.5, (len(x), 1))) if m.training else x + 0.5 * m(x)",
    ),
)
QUANTIZED = ("QuantizedLinear", "QuantizedAllToShardedLinear", "QuantizedShardedToAllLinear")
LIBRARY = Library(
    "nn",
    "nn.Module",
    ("mlx",),
    calls=("dense(fit(m({given}{named}), *x.shape))",),
    values={
        "Sequential.modules": "nn.Linear(4, 4), nn.Dropout(0.5)",
        "FullyShardedModule.module": "nn.Linear(4, 4)",
        **{f"Transformer.num_{part}_layers": "1" for part in ("encoder", "decoder")},
        **{"Transformer.dims": "4", "Transformer.num_heads": "2", "QuantizedEmbedding.dims": "64"},
        **{f"{kind}.{side}_dims": "64" for kind in QUANTIZED for side in ("input", "output")},
    },
    shapes=((2, 4), (2, 3, 4), (2, 4, 4, 4), (2, 4, 4, 4, 4), (2, 64)),
)


class Mlx(Framework):
    name = f"mlx {version('mlx')}"
    versions = {"mlx": version("mlx"), "numpy": np.__version__}
    script_gradient = "mx.grad(objective, {at})({arguments})"
    imports = (
        "import math\nimport mlx.core as mx\nimport mlx.nn as nn\nfrom mlx.utils import tree_flatten, tree_unflatten"
    )
    helpers = (bound, dense, floats, fit, differentiate, parameters_of, state_of, set_mode)
    kinds = KINDS
    modules = MODULES
    library = LIBRARY
    losses = {
        "mse": "((y.reshape(target.shape) - target) ** 2).mean()",
        "cross_entropy": ("nn.losses.cross_entropy(y.reshape(len(target), -1), target, reduction='mean')"),
    }
    features = COMMON | {"sequences"}
    observed = SEEN | {"rng_state", "executions"}
    whole_segments = True
    promises = PROMISES
    promise_helpers = (gradients,)
    checkpoint_function = "mx.checkpoint"
    checkpoint = "mx.checkpoint({function})({arguments})"
    bind = "bound({m}, {w})"
    detach = "mx.stop_gradient({x})"
    sees_draws = True
    script_array = "mx.array({array})"
    script_random_state = "mx.random.state[0]"

    def __init__(self) -> None:
        mx.set_default_device(mx.cpu)
        super().__init__()

    def array(self, a: np.ndarray) -> Any:
        return mx.array(a)

    def numpy(self, a: Any) -> np.ndarray:
        return np.array(a)

    def seed(self, seed: int) -> str:
        return f"mx.random.seed({seed})"

    def random_state(self) -> bytes:
        return np.array(mx.random.state[0]).tobytes()


def subject(arguments: list[str]) -> Framework:
    parser = argparse.ArgumentParser(prog="python -m rematch mlx")
    parser.add_argument("--closure", action="store_true", help="segments use parameters that they are not given")
    words = parser.parse_args(arguments)
    mlx = Mlx()
    mlx.nested_functions = words.closure
    return mlx
