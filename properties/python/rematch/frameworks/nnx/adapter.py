"""flax.nnx: `nnx.remat()` of functions that take modules and generators, which they change."""

import argparse
from functools import partial
from importlib.metadata import version
from typing import Any

import jax
import numpy as np
from flax import nnx

from rematch.frameworks.jax.adapter import OnJax
from rematch.frameworks.jax.jax_layers import FUNCTIONS, IMPORTS, kinds, xla
from rematch.frameworks.jax.promises_linen import PROMISES as LINEN
from rematch.frameworks.jax.saved import Step
from rematch.frameworks.nnx.promises import PROMISES
from rematch.subjects.adapter_layers import Module
from rematch.subjects.framework import COMMON, Framework, Run


def parameters_of(m: Any) -> Any:
    return jax.tree.leaves(nnx.state(m, nnx.Param))


def state_of(m: Any) -> Any:
    return jax.tree.leaves(nnx.state(m, nnx.Not(nnx.Any(nnx.Param, nnx.RngKey))))


def set_mode(m: Any, train: bool) -> None:
    m.train() if train else m.eval()


def differentiate(objective: Any, arguments: Any, trained: Any) -> Any:
    if not trained:
        return (*objective(*arguments), [])
    step = nnx.value_and_grad(objective, argnums=tuple(trained), has_aux=True)
    (loss, outputs), gradients = step(*arguments)
    return loss, outputs, [jax.tree.leaves(g) if isinstance(g, nnx.State) else g for g in gradients]


def _images(module: str) -> str:
    """The call of a module that takes channels last."""
    return f"{module}(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)"


_ROWS, _IMAGES = "N C -> N C", "N C H W -> N C H W"
_RNGS = "rngs=nnx.Rngs(7)"
MODULES = (
    Module("batch_norm_rows", _ROWS, f"nnx.BatchNorm(C, {_RNGS})", "parameters, state"),
    Module("batch_norm_images", _IMAGES, f"nnx.BatchNorm(C, {_RNGS})", "parameters, state", _images("m")),
    Module("layer_norm", _ROWS, f"nnx.LayerNorm(C, {_RNGS})", "parameters"),
    Module("linear", _ROWS, f"nnx.Linear(C, C, {_RNGS})", "parameters"),
    Module("dropout", _ROWS, "nnx.Dropout(0.5)", "draws", "m(x, rngs=rngs)"),
    Module("dropout_with_rngs", _ROWS, f"nnx.Dropout(0.5, {_RNGS})", "state"),
    Module("dropout_rows", _ROWS, "nnx.Dropout(0.5, broadcast_dims=(1,))", "draws", "m(x, rngs=rngs)"),
    Module(
        "attention",
        "N 2C -> N 2C",
        f"nnx.MultiHeadAttention(2, 2 * C, dropout_rate=0.25, decode=False, {_RNGS})",
        "parameters, draws",
        "m(x[None], rngs=rngs)[0]",
    ),
    Module("lora", _ROWS, f"nnx.LoRALinear(C, C, lora_rank=1, {_RNGS})", "parameters"),
    Module("lstm", _ROWS, f"nnx.RNN(nnx.LSTMCell(C, C, {_RNGS}), rngs=nnx.Rngs(7))", "parameters", "m(x[None])[0]"),
    Module(
        "sequential",
        _ROWS,
        f"nnx.Sequential(nnx.Linear(C, C, {_RNGS}), nnx.BatchNorm(C, {_RNGS}), nnx.Dropout(0.5, {_RNGS}))",
        "parameters, state",
    ),
)


class Nnx(OnJax):
    """`plain_checkpoint`: by `jax.checkpoint()`, which takes modules as well."""

    versions = {"flax": version("flax"), "jax": jax.__version__, "numpy": np.__version__}
    imports = f"{xla()}{IMPORTS}\nfrom flax import nnx"
    script_gradient = "nnx.grad(objective, argnums={at})({arguments})"
    helpers = (*FUNCTIONS, parameters_of, state_of, set_mode, differentiate)
    kinds = kinds("rngs()")
    features = COMMON
    observed = OnJax.observed | {"rng_state"}
    modules = MODULES
    promises = (*PROMISES, *LINEN)
    checkpoint_function = "nnx.remat"
    modules_are_arguments = True
    extras = ("rngs",)
    script_random_state = "rngs.default.count[...]"

    def __init__(self, plain_checkpoint: bool = False) -> None:
        self.name = f"flax.nnx {version('flax')}"
        self.checkpoint = "nnx.remat({function})({arguments})"
        if plain_checkpoint:
            self.name += " by jax.checkpoint()"
            self.checkpoint = "jax.checkpoint({function})({arguments})"
            self.promises = ()
        super().__init__()

    def seed(self, seed: int) -> str:
        return f"rngs = nnx.Rngs({seed})"

    def random_state(self) -> bytes:
        return np.asarray(self._rngs.default.count[...]).tobytes()

    def given(self, run: Run, x: np.ndarray) -> list[Any]:
        self._rngs = run.names["rngs"]
        values = {"x": self.array(x), **run.modules, "rngs": self._rngs}
        for name, value in zip(run.parameter_names, run.parameters, strict=True):
            if isinstance(value, list):
                module = run.modules[f"m{name[1:]}"]
                trained = jax.tree.structure(nnx.state(module, nnx.Param))
                nnx.update(module, jax.tree.unflatten(trained, value))
            else:
                values[name] = value
        return [values[name] for name in run.arguments]

    def differentiate(self, run: Run, objective: partial[Any], arguments: list[Any], trained: list[int]) -> Any:
        def step(around: Any, *given: Any) -> Any:
            return differentiate(partial(objective.func, *around), given, trained)

        return self._steps.get(run.key, lambda: Step(nnx.jit(step)))(run, objective.args, *arguments)


def subject(arguments: list[str]) -> Framework:
    parser = argparse.ArgumentParser(prog="python -m rematch nnx")
    parser.add_argument("--plain-checkpoint", action="store_true", help="checkpoint by jax.checkpoint()")
    return Nnx(**vars(parser.parse_args(arguments)))
