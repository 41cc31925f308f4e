"""Equinox: `eqx.filter_checkpoint()`; keys and states are values."""

from functools import partial
from importlib.metadata import version
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from rematch.frameworks.equinox.promises import PROMISES
from rematch.frameworks.jax.adapter import OnJax
from rematch.frameworks.jax.jax_layers import FUNCTIONS, IMPORTS, kinds, xla
from rematch.frameworks.jax.saved import Step
from rematch.subjects.adapter_layers import Module
from rematch.subjects.framework import COMMON, Framework, Pending, Place, Run


class Made:
    """A module, and its state if it has one, in float32 though float64 is enabled."""

    def __init__(self, make: Any) -> None:
        def single(a: Any) -> Any:
            return a.astype(jnp.float32) if eqx.is_inexact_array(a) else a

        self.module, self.state = jax.tree.map(single, eqx.nn.make_with_state(make)())


def parameters_of(m: Any) -> Any:
    return jax.tree.leaves(eqx.filter(m.module, eqx.is_inexact_array))


def state_of(m: Any) -> Any:
    return jax.tree.leaves(m.state)


def set_mode(m: Any, train: bool) -> None:
    m.module = eqx.nn.inference_mode(m.module, value=not train)


def bound(m: Any, w: Any) -> Any:
    """The module with other weights."""
    trained, rest = eqx.partition(m.module, eqx.is_inexact_array)
    return eqx.combine(jax.tree.unflatten(jax.tree.structure(trained), w), rest)


def rows(m: Any, x: Any, state: Any, key: Any) -> Any:
    """The outputs for each row, without a state."""
    keys = jax.random.split(key, len(x))
    return jax.vmap(lambda x, key: m(x, key=key))(x, keys), state


def stateful(m: Any, x: Any, state: Any, layer: Any) -> Any:
    over_rows = jax.vmap(m, in_axes=(0, None), out_axes=(0, None), axis_name="rows")
    y, new = over_rows(x, state[layer])
    return y, {**state, layer: new}


def differentiate(objective: Any, arguments: Any, trained: Any) -> Any:
    def chosen(some: Any, others: Any) -> Any:
        return objective(*(some.get(i, others[i]) for i in range(len(others))))

    some = {i: arguments[i] for i in trained}
    others = [None if i in some else a for i, a in enumerate(arguments)]
    step = eqx.filter_value_and_grad(chosen, has_aux=True)
    (loss, outputs), gradients = step(some, others)
    return loss, outputs, [gradients[i] for i in trained]


_KEY = "jax.random.key(7)"
_DRAWN = "jax.random.fold_in(key, LAYER)"
_ROWS, _IMAGES = "N C -> N C", "N C H W -> N C H W"
_EACH = f"rows(m, x, state, {_DRAWN})"
_STATEFUL = "stateful(m, x, state, LAYER)"


def _module(name: str, shapes: str, make: str, traits: str = "", call: str = _EACH) -> Module:
    return Module(name, shapes, f"Made(lambda: {make})", traits, call)


MODULES = (
    _module("linear", _ROWS, f"eqx.nn.Linear(C, C, key={_KEY})", "parameters"),
    _module("batch_norm_rows", _ROWS, 'eqx.nn.BatchNorm(C, "rows", mode="batch")', "parameters, state", _STATEFUL),
    _module("batch_norm_images", _IMAGES, 'eqx.nn.BatchNorm(C, "rows", mode="ema")', "parameters, state", _STATEFUL),
    _module(
        "spectral_norm",
        _ROWS,
        f'eqx.nn.SpectralNorm(eqx.nn.Linear(C, C, key={_KEY}), "weight", key={_KEY})',
        "parameters, state",
        _STATEFUL,
    ),
    _module("weight_norm", _ROWS, f"eqx.nn.WeightNorm(eqx.nn.Linear(C, C, key={_KEY}))", "parameters"),
    _module("dropout", _ROWS, "eqx.nn.Dropout(0.5)", "draws"),
    _module("layer_norm", _ROWS, "eqx.nn.LayerNorm(C)", "parameters"),
    _module("rms_norm", _ROWS, "eqx.nn.RMSNorm(C)", "parameters"),
    _module("group_norm", _IMAGES, "eqx.nn.GroupNorm(1, C)", "parameters"),
    _module("prelu", _ROWS, "eqx.nn.PReLU()", "parameters", "(jax.vmap(m)(x), state)"),
    _module("conv", _IMAGES, f"eqx.nn.Conv2d(C, C, 3, padding=1, key={_KEY})", "parameters"),
    _module("max_pool", _IMAGES, "eqx.nn.MaxPool2d(3, 1, 1)"),
    _module("mlp", _ROWS, f"eqx.nn.MLP(C, C, 4, 1, key={_KEY})", "parameters"),
    _module(
        "sequential",
        _ROWS,
        f"eqx.nn.Sequential([eqx.nn.Linear(C, C, key={_KEY}), eqx.nn.Lambda(jax.nn.relu), eqx.nn.Dropout(0.5)])",
        "parameters, draws",
    ),
    _module("gru", _ROWS, f"eqx.nn.GRUCell(C, C, key={_KEY})", "parameters", "(jax.vmap(m)(x, x), state)"),
    _module(
        "attention",
        "N 2C -> N 2C",
        f"eqx.nn.MultiheadAttention(2, 2 * C, dropout_p=0.25, key={_KEY})",
        "parameters, draws",
        f"(m(x, x, x, key={_DRAWN}), state)",
    ),
)


class Equinox(OnJax):
    name = f"equinox {version('equinox')}"
    versions = {"equinox": version("equinox"), "jax": jax.__version__, "numpy": np.__version__}
    imports = f"{xla()}{IMPORTS}\nimport equinox as eqx"
    helpers = (*(*FUNCTIONS, Made, parameters_of, state_of, set_mode, bound, rows, stateful), differentiate)
    kinds = kinds("jax.random.fold_in(key, {layer})")
    features = COMMON
    modules = MODULES
    promises = PROMISES
    checkpoint_function = "eqx.filter_checkpoint"
    extras = ("key",)
    state = "state"
    bind = "bound({m}, {w})"
    checkpoint = "eqx.filter_checkpoint({function})({arguments})"

    def seed(self, seed: int) -> str:
        return f"key = jax.random.key({seed})"

    def forward(self, run: Run, x: np.ndarray, target: np.ndarray, place: Place) -> Pending:
        run.names["key"] = jax.random.fold_in(run.names["key"], 1)
        return super().forward(run, x, target, place)

    def differentiate(self, run: Run, objective: partial[Any], arguments: list[Any], trained: list[int]) -> Any:
        modules = run.modules

        def step(around: Any, states: Any, given: Any) -> Any:
            for name, m in modules.items():
                m.state = jax.tree.unflatten(jax.tree.structure(m.state), states[name])
            loss, outputs, gradients = differentiate(partial(objective.func, *around), given, trained)
            new = {}
            if modules:
                *outputs, state = outputs
                new = {name: jax.tree.leaves(state[int(name[1:])]) for name in modules}
            return loss, outputs, gradients, new

        states = {name: state_of(m) for name, m in modules.items()}
        run_step = self._steps.get(run.key, lambda: Step(jax.jit(step)))
        loss, outputs, gradients, new = run_step(run, objective.args, states, arguments)
        for name, m in modules.items():
            m.state = jax.tree.unflatten(jax.tree.structure(m.state), new[name])
        return loss, outputs, gradients


def subject(arguments: list[str]) -> Framework:
    return Equinox()
