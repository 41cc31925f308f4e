"""MindSpore, op by op: `mindspore.recompute()`, both variants."""

import argparse
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

os.environ.setdefault("GLOG_v", "4")
os.environ["OMP_NUM_THREADS"] = "1"

import mindspore as ms  # noqa: E402
from mindspore import nn  # noqa: E402

from rematch.frameworks.mindspore.mindspore_run import OBSERVED, HookedRun  # noqa: E402
from rematch.frameworks.mindspore.promises import HELPERS, PROMISES  # noqa: E402
from rematch.subjects.adapter_layers import Module, where_drawn  # noqa: E402
from rematch.subjects.case import Choice, Layer  # noqa: E402
from rematch.subjects.framework import COMMON, SEEN, Framework  # noqa: E402


class Segment(nn.Cell):
    """A function as a cell, with the modules that it calls."""

    def __init__(self, function: Any, modules: Any):
        super().__init__()
        self.function = function
        self.modules = nn.CellList(modules)

    def construct(self, *values: Any, **keywords: Any) -> Any:
        return self.function(*values, **keywords)


def modules_of(function: Any) -> list[Any]:
    """The modules that the function calls, itself or in segments within it."""
    names = [n for n in function.__code__.co_names if re.fullmatch(r"m\d+|(\w+_)?segment_\w+", n)]
    found = [function.__globals__[n] for n in names]
    return [m for f in found for m in ([f] if isinstance(f, nn.Cell) else modules_of(f))]


def recompute(function: Any, *values: Any, **options: Any) -> Any:
    """Lists in `values` are parameters of modules: the cell has them, so that ms.recompute() does not get them."""
    tensors = [v for v in values if not isinstance(v, list)]

    def run(*given: Any, **keywords: Any) -> Any:
        left = iter(given)
        merged = [v if isinstance(v, list) else next(left) for v in values]
        return function(*merged, **keywords)

    return ms.recompute(Segment(run, modules_of(function)), *tensors, **options)


def differentiate(objective: Any, arguments: Any, trained: Any) -> Any:
    inputs = tuple(i for i in trained if not isinstance(arguments[i], list))
    weights = [p for i in trained if isinstance(arguments[i], list) for p in arguments[i]]
    if not trained:
        loss, outputs = objective(*arguments)
        return loss, outputs, []

    def flat(*values: Any) -> Any:
        loss, outputs = objective(*values)
        return loss, *outputs

    step = ms.value_and_grad(flat, inputs or None, weights or None, has_aux=True)
    (loss, *outputs), found = step(*arguments)
    # Both kinds come as a pair of tuples; one alone as it is, and a tuple of one as its element.
    by_input, by_weight = found if inputs and weights else (found, found)
    by_input = by_input if isinstance(by_input, tuple) else (by_input,)
    of_inputs = dict(zip(inputs, by_input, strict=True)) if inputs else {}
    left = iter(by_weight if weights else ())
    gradients = [of_inputs[i] if i in inputs else [next(left) for _ in arguments[i]] for i in trained]
    return loss, outputs, gradients


def parameters_of(m: Any) -> list[Any]:
    return list(m.trainable_params())


def state_of(m: Any) -> list[Any]:
    return [p for p in m.get_parameters() if not p.requires_grad]


def set_mode(m: Any, train: bool) -> None:
    m.set_train(train)


def _conv2d(layer: Layer, train: bool) -> str:
    bias = ", {bias}" if layer.bias else ", None"
    return f"ops.conv2d({{x}}, {{weight}}{bias}, {{stride}}, 'pad', {{padding}})"


KINDS = {
    "linear": lambda layer, train: "ops.matmul({x}, {weight}.T)" + (" + {bias}" if layer.bias else ""),
    "conv2d": _conv2d,
    "relu": "ops.relu({x})",
    "dropout": where_drawn("ops.dropout({x}, {p}, True)"),
    "layer_norm": "ops.LayerNorm(-1, -1, 1e-5)({x}, {weight}, {bias})[0]",
    "gelu": "ops.gelu({x}, approximate='none')",
    "silu": "ops.silu({x})",
    "tanh": "ops.tanh({x})",
    "sigmoid": "ops.sigmoid({x})",
    "softmax": "ops.softmax({x}, -1)",
    "gaussian_noise": where_drawn("{x} + {p} * ops.randn({x}.shape)"),
    "flatten": "{x}.reshape({x}.shape[0], -1)",
    "add": "{x} + {y}",
    "mul": "{x} * {y}",
    "concat": "ops.cat([{x}, {y}], {axis})",
    "split": "ops.tensor_split({x}, [{features}], {axis})",
    "duplicate": "({x}, {x})",
}

MODULES = (
    Module("dense", "N C -> N C", "nn.Dense(C, C)", "parameters"),
    Module("batch_norm_rows", "N C -> N C", "nn.BatchNorm1d(C)", "parameters, state"),
    Module("batch_norm_images", "N C H W -> N C H W", "nn.BatchNorm2d(C)", "parameters, state"),
    Module("dropout_layer", "N C -> N C", "nn.Dropout(p=0.5)", "draws"),
    Module("group_norm", "N C H W -> N C H W", "nn.GroupNorm(1, C)", "parameters"),
    Module("lstm", "N C -> N C", "nn.LSTM(C, C)", "parameters", "m(x[None])[0][0]"),
)


class MindSpore(Framework):
    """Both variants: with use_reentrant=True a segment is a cell that defines its gradient; else
    hooks on saved tensors recompute it."""

    versions = {"mindspore": ms.__version__, "numpy": np.__version__}
    # With more threads, sums differ from run to run.
    imports = (
        'import os\nimport re\n\nos.environ["OMP_NUM_THREADS"] = "1"\n'
        "import mindspore as ms\nfrom mindspore import nn, ops\n\n"
        'ms.set_context(mode=ms.PYNATIVE_MODE, device_target="CPU", runtime_num_threads=1)\n'
        "ms.set_deterministic(True)"
    )
    script_gradient = "ms.grad(objective, {at})({arguments})"
    helpers = (Segment, modules_of, recompute, differentiate, parameters_of, state_of, set_mode)
    kinds = KINDS
    modules = MODULES
    losses = {
        "mse": "((y.reshape(target.shape) - target) ** 2).mean()",
        # ops.cross_entropy() adds up in another order from run to run.
        "cross_entropy": "-ops.gather_elements("
        "ops.log_softmax(y.reshape(target.shape[0], -1), -1), 1, target.reshape(-1, 1)).mean()",
    }
    features = COMMON | {"reentrant", "mixed_variants", "early_stop"}
    observed = SEEN | OBSERVED | {"rng_state", "executions"}
    made_line = "made({layer}, {outputs})"
    promises = PROMISES
    promise_helpers = (Segment, modules_of, recompute, *HELPERS)
    checkpoint_function = (
        "lambda function, **options: lambda *values, **keywords: recompute(function, *values, **options, **keywords)"
    )
    sees_draws = True
    whole_segments = True
    detach = "ops.stop_gradient({x})"
    script_array = "ms.Tensor({array})"
    script_random_state = "ms.get_rng_state()"

    def __init__(self) -> None:
        self.name = f"mindspore {ms.__version__}"
        super().__init__()
        self.run_type = HookedRun

    def differentiate(self, run: Any, objective: Any, arguments: list[Any], trained: list[int]) -> Any:
        return run.looked(differentiate, objective, arguments, trained)

    def checkpoint_call(
        self, function: str, arguments: Sequence[str], choice: Choice, chosen: Mapping[str, str]
    ) -> str:
        options = f"use_reentrant={choice.reentrant}"
        if not choice.reentrant and not choice.early_stop:
            options += ", early_stop=False"
        return f"recompute({function}, {', '.join(arguments)}, {options})"

    def array(self, a: np.ndarray) -> Any:
        return ms.Tensor(a)

    def numpy(self, a: Any) -> np.ndarray:
        return np.array(a.asnumpy())

    def message(self, error: Exception) -> str:
        """Without the part for developers of the framework."""
        return super().message(error).partition("\n")[0]

    def bound(self, module: Any, values: Any) -> list[Any]:
        for parameter, value in zip(parameters_of(module), values, strict=True):
            parameter.set_data(ms.Tensor(value))
        return parameters_of(module)

    def seed(self, seed: int) -> str:
        return f"ms.set_seed({seed}), ms.manual_seed({seed})"

    def random_state(self) -> bytes:
        return ms.get_rng_state().asnumpy().tobytes()


def subject(arguments: list[str]) -> Framework:
    argparse.ArgumentParser(prog="python -m rematch mindspore").parse_args(arguments)
    return MindSpore()
