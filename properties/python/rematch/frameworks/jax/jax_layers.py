"""The layers of models in JAX; those of its libraries are beside them."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name

from rematch.subjects.adapter_layers import Module, Template, where_drawn
from rematch.subjects.case import Layer

_COMPILES_FAST = (
    "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
)
"""In a third of the time; what XLA merges, moves and fuses stays the same."""


def xla(same_rounding: bool = True) -> str:
    """Lines that configure XLA, which have to stand before the first array is made. Unless `same_rounding`, how
    XLA rounds an operation depends on what else is compiled with it."""
    more = " --xla_disable_hlo_passes=fusion,algsimp,constant_folding,transpose-folding" if same_rounding else ""
    why = "# An operation rounds the same whatever else is compiled with it.\n" if same_rounding else ""
    return f'import os\n\n{why}os.environ["XLA_FLAGS"] = "{_COMPILES_FAST}{more}"\n'


IMPORTS = """\
import jax
import jax.numpy as jnp
from jax import lax
from jax.ad_checkpoint import checkpoint_name

jax.config.update("jax_enable_x64", True)"""

LOSSES = {
    "mse": "((y.reshape(target.shape) - target) ** 2).mean()",
    "cross_entropy": (
        "-jnp.take_along_axis(jax.nn.log_softmax(y.reshape(len(target), -1)), target[:, None], 1).mean()"
    ),
}

KEY = "jax.random.fold_in(key, LAYER)"


class Steps:
    """The latest compiled functions."""

    def __init__(self) -> None:
        self._made: dict[str, Callable[..., Any]] = {}

    def get(self, key: str, make: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
        found = self._made.get(key)
        if found is None:
            if len(self._made) == 64:
                del self._made[next(iter(self._made))]
            found = self._made[key] = make()
        return found


def normalized(x: Any, axes: Any, weight: Any, bias: Any) -> Any:
    centered = x - x.mean(axes, keepdims=True)
    variance = (centered * centered).mean(axes, keepdims=True)
    return centered * lax.rsqrt(variance + 1e-5) * weight + bias


def dropout(x: Any, p: Any, key: Any) -> Any:
    mask = jax.random.bernoulli(key, 1 - p, x.shape)
    return checkpoint_name(jnp.where(mask, x * (1 / (1 - p)), 0), "kept")


def windows(x: Any, kernel: Any, stride: Any, padding: Any, start: Any, combine: Any) -> Any:
    around = [(0, 0), (0, 0), (padding, padding), (padding, padding)]
    sizes, strides = (1, 1, kernel, kernel), (1, 1, stride, stride)
    return lax.reduce_window(x, x.dtype.type(start), combine, sizes, strides, around)


def _linear(layer: Layer, train: bool) -> str:
    return 'checkpoint_name({x} @ {weight}.T, "kept")' + (" + {bias}" if layer.bias else "")


def _conv2d(layer: Layer, train: bool) -> str:
    around = "[{stride}] * 2, [({padding}, {padding})] * 2"
    bias = " + {bias}.reshape(1, -1, 1, 1)" if layer.bias else ""
    return f"lax.conv_general_dilated({{x}}, {{weight}}, {around})" + bias


def kinds(key: str) -> Mapping[str, Template]:
    """`key`: the expression of a fresh one."""
    pool = "windows({x}, {kernel}, {stride}, {padding}, "
    noise = f"{{x}} + {{p}} * jax.random.normal({key}, {{x}}.shape, {{x}}.dtype)"
    return {
        "embedding": "{weight}[{x}]",
        "linear": _linear,
        "conv2d": _conv2d,
        "relu": "jax.nn.relu({x})",
        "max_pool2d": pool + "-jnp.inf, lax.max)",
        "avg_pool2d": pool + "0, lax.add) * (1 / {kernel} ** 2)",
        "dropout": where_drawn(f"dropout({{x}}, {{p}}, {key})"),
        "layer_norm": "normalized({x}, -1, {weight}, {bias})",
        "rms_norm": "{x} * lax.rsqrt(({x} * {x}).mean(-1, keepdims=True) + 1e-5) * {weight}",
        "gelu": "jax.nn.gelu({x}, approximate=False)",
        "silu": "jax.nn.silu({x})",
        "tanh": 'checkpoint_name(jnp.tanh({x}), "kept")',
        "sigmoid": "jax.nn.sigmoid({x})",
        "softmax": "jax.nn.softmax({x}, -1)",
        "gaussian_noise": where_drawn(noise),
        "flatten": "{x}.reshape(len({x}), -1)",
        "add": "{x} + {y}",
        "mul": "{x} * {y}",
        "concat": "jnp.concatenate([{x}, {y}], {axis})",
        "split": "jnp.split({x}, [{features}], {axis})",
        "duplicate": "({x}, {x})",
    }


class Weights(list):
    """The arrays of a layer, and references to what it changes."""

    training = True


def weights(*shapes: Any) -> Any:
    draw = np.random.default_rng(len(shapes)).standard_normal
    return Weights(jnp.asarray(0.5 * draw(shape), jnp.float32) for shape in shapes)


def parameters_of(m: Any) -> Any:
    return [part for part in m if not isinstance(part, jax.Ref)]


def state_of(m: Any) -> Any:
    return [part[...] for part in m if isinstance(part, jax.Ref)]


def set_mode(m: Any, train: bool) -> None:
    m.training = train


def bound(m: Any, w: Any) -> Any:
    """The layer with other weights."""
    new = Weights([*w, *(part for part in m if isinstance(part, jax.Ref))])
    new.training = m.training
    return new


def recurrent(m: Any, x: Any) -> Any:
    def cell(h: Any, row: Any) -> Any:
        h = jnp.tanh(row @ m[0] + h @ m[1])
        return h, h

    return lax.scan(cell, jnp.zeros(x.shape[1], x.dtype), x)[1]


def own_gradient(x: Any) -> Any:
    same = jax.custom_vjp(lambda x: x)
    same.defvjp(lambda x: (x, x), lambda x, g: (jnp.where(x > 0, g, 0.5 * g),))
    return same(x)


def attention(m: Any, x: Any) -> Any:
    q, k, v = ((x @ w)[None, :, None] for w in m)
    return jax.nn.dot_product_attention(q, k, v)[0, :, 0]


def gated(m: Any, x: Any, key: Any) -> Any:
    noise = jax.random.gumbel(key, x.shape, x.dtype) if m.training else 0
    return x * jax.nn.sigmoid(m[0] + noise)


def shuffled(m: Any, x: Any, key: Any) -> Any:
    return x[:, jax.random.permutation(key, x.shape[1])] if m.training else x


def host_dropout(m: Any, x: Any) -> Any:
    if not m.training:
        return x
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    draw = lambda x: (np.random.random(x.shape) < 0.5).astype(x.dtype)  # noqa: E731
    return x * x * jax.pure_callback(draw, shape, lax.stop_gradient(x))


def running(m: Any, x: Any) -> Any:
    """Scaled by the running mean of what came before."""
    before = m[0][...]
    if m.training:
        m[0][...] = 0.9 * before + 0.1 * lax.stop_gradient(x).mean().astype(jnp.float32)
    return x * (1 + before)


def _rows(name: str, call: str, *shapes: str, traits: str = "") -> Module:
    made = f"weights({', '.join(shapes)})"
    traits = ", ".join(filter(None, ["parameters" if shapes else "", traits]))
    return Module(name, "N C -> N C", made, traits, call)


MODULES = (
    _rows("recurrent", "recurrent(m, x)", "(C, C)", "(C, C)"),
    _rows("attention", "attention(m, x)", "(C, C)", "(C, C)", "(C, C)"),
    _rows("own_gradient", "own_gradient(x)"),
    _rows("gated", f"gated(m, x, {KEY})", "(C,)", traits="draws"),
    _rows("shuffled", f"shuffled(m, x, {KEY})", traits="draws"),
    _rows("looked_up", "m[0][jnp.argmax(x, -1)]", "(C, C)"),
    _rows("chosen", "lax.cond(x.sum() > 0, lambda: jnp.sin(x) * m[0], lambda: x * x)", "(C,)"),
    _rows("sorted", "jnp.sort(x, -1)"),
    _rows("cumulative", "jnp.tanh(jnp.cumsum(x, 1))"),
    _rows("jitted", "jax.jit(jnp.multiply)(x, m[0])", "(C,)"),
    _rows("checkpointed", "jax.checkpoint(lambda x: jnp.tanh(x @ m[0]))(x)", "(C, C)"),
)
REFERENCES = (
    _rows("host_dropout", "host_dropout(m, x)", traits="draws"),
    Module("running", "N C -> N C", "Weights([jax.new_ref(jnp.zeros((), jnp.float32))])", "state", "running(m, x)"),
)
FUNCTIONS = (normalized, dropout, windows)
"""Which the kinds need."""
HELPERS = (
    *(*FUNCTIONS, Weights, weights, parameters_of, state_of, set_mode, bound, recurrent),
    *(own_gradient, attention, gated, shuffled, host_dropout, running),
)
