"""autograd (HIPS) as a subject: NumPy with gradients, checkpointed by `autograd.checkpoint`."""

from __future__ import annotations

import argparse
from importlib.metadata import version

import autograd.builtins
import autograd.numpy as anp
import numpy as np
from autograd.core import primitive_vjps
from autograd.extend import vspace
from autograd.tracer import getval, trace_primitives_map

from rematch.frameworks.autograd.run import AutogradRun
from rematch.subjects.adapter_layers import where_drawn
from rematch.subjects.framework import COMMON, SEEN, Framework

_TABLES = [(table, len(table)) for table in (trace_primitives_map, primitive_vjps)]
"""Where checkpoint() enters every function that it wraps, for good, and what is there before."""


def checkpoint_of(function):
    """autograd.checkpoint, of which a plain tuple as the result would have no gradient."""

    def boxed(*arguments):
        y = function(*arguments)
        return autograd.builtins.tuple(y) if isinstance(y, tuple) else y

    return autograd.checkpoint(boxed)


def recorded(objective, arguments, trained):
    outputs = []

    def loss_of(*arguments):
        loss, values = objective(*arguments)
        outputs.extend(getval(y) for y in values)
        return loss

    if not trained:
        return loss_of(*arguments), outputs, lambda _: []
    gradients_of, loss = autograd.make_vjp(loss_of, tuple(trained))(*arguments)
    return loss, outputs, gradients_of


def differentiate(objective, arguments, trained):
    loss, outputs, gradients_of = recorded(objective, arguments, trained)
    return loss, outputs, gradients_of(vspace(loss).ones())


def rows(y):
    return y.reshape((len(y), -1))


def cross_entropy(y, target):
    shifted = y - anp.max(y, axis=1, keepdims=True)
    scores = shifted - anp.log(anp.sum(anp.exp(shifted), axis=1, keepdims=True))
    return -anp.mean(scores[anp.arange(len(target)), target])


def softmax(x):
    exponentials = anp.exp(x - anp.max(x, axis=-1, keepdims=True))
    return exponentials / anp.sum(exponentials, axis=-1, keepdims=True)


def sigmoid(x):
    """Without an overflow in exp()."""
    positive = x > 0
    e = anp.exp(anp.where(positive, -x, x))
    return anp.where(positive, 1, e) / (1 + e)


def rrelu(x, slopes):
    return anp.where(x > 0, x, x * slopes)


def normalise(x, axes):
    centred = x - anp.mean(x, axis=axes, keepdims=True)
    return centred / anp.sqrt(anp.mean(centred**2, axis=axes, keepdims=True) + 1e-5)


def channels(parameter, x):
    """The parameter in a shape that spreads over the images, or rows, of x."""
    return anp.reshape(parameter, (1, -1) + (1,) * (anp.ndim(x) - 2))


def group_norm(x, groups):
    grouped = anp.reshape(x, (x.shape[0], groups, -1))
    return anp.reshape(normalise(grouped, -1), x.shape)


def windows(x, kernel, stride, padding, fill=0.0):
    """For each place in the kernel what lies under it, for all positions of the kernel."""
    edges = ((0, 0), (0, 0), (padding, padding), (padding, padding))
    if padding:
        x = anp.pad(x, edges, "constant", constant_values=fill)
    h, w = (extent - kernel + 1 for extent in x.shape[2:])
    return [x[:, :, i : i + h : stride, j : j + w : stride] for i in range(kernel) for j in range(kernel)]


def conv2d(x, weight, stride, padding):
    kernel = weight.shape[2]
    places = anp.stack(windows(x, kernel, stride, padding))
    return anp.einsum("knchw,ock->nohw", places, weight.reshape((*weight.shape[:2], -1)))


def max_pool2d(x, kernel, stride, padding):
    return anp.max(anp.stack(windows(x, kernel, stride, padding, -anp.inf)), axis=0)


def avg_pool2d(x, kernel, stride, padding):
    return anp.mean(anp.stack(windows(x, kernel, stride, padding)), axis=0)


class Autograd(Framework):
    name = f"autograd {version('autograd')}"
    versions = {"autograd": version("autograd"), "numpy": np.__version__}
    imports = (
        "import autograd.builtins\nimport autograd.numpy as anp\n"
        "from autograd.extend import vspace\nfrom autograd.tracer import getval"
    )
    script_gradient = "autograd.grad(objective, {at})({arguments})"
    helpers = (
        checkpoint_of, recorded, differentiate, rows, cross_entropy, softmax, sigmoid, rrelu, normalise,
        channels, group_norm, windows, conv2d, max_pool2d, avg_pool2d,
    )  # fmt: skip
    kinds = {
        "linear": lambda layer, train: "anp.dot({x}, {weight}.T)" + (" + {bias}" if layer.bias else ""),
        "conv2d": lambda layer, train: (
            "conv2d({x}, {weight}, {stride}, {padding})" + (" + channels({bias}, {x})" if layer.bias else "")
        ),
        "max_pool2d": "max_pool2d({x}, {kernel}, {stride}, {padding})",
        "avg_pool2d": "avg_pool2d({x}, {kernel}, {stride}, {padding})",
        "relu": "anp.where({x} > 0, {x}, 0.0)",
        "tanh": "anp.tanh({x})",
        "sigmoid": "sigmoid({x})",
        "silu": "({x} * sigmoid({x}))",
        "softmax": "softmax({x})",
        "layer_norm": "(normalise({x}, -1) * {weight} + {bias})",
        "rms_norm": "({x} / anp.sqrt(anp.mean({x}**2, axis=-1, keepdims=True) + 1e-5) * {weight})",
        "group_norm": ("(group_norm({x}, {groups}) * channels({weight}, {x}) + channels({bias}, {x}))"),
        "dropout": where_drawn("({x} * (anp.random.rand(*{x}.shape) >= {p}) / (1 - {p}))"),
        "gaussian_noise": where_drawn("({x} + {p} * anp.random.randn(*{x}.shape))"),
        "rrelu": lambda layer, train: (
            "rrelu({x}, anp.random.rand(*{x}.shape) * (1 / 3 - 1 / 8) + 1 / 8)"
            if train
            else "rrelu({x}, (1 / 8 + 1 / 3) / 2)"
        ),
        "flatten": "rows({x})",
        "add": "({x} + {y})",
        "mul": "({x} * {y})",
        "concat": "anp.concatenate(({x}, {y}), axis=1)",
        "split": "({x}[:, :{features}], {x}[:, {features}:])",
        "duplicate": "({x}, {x})",
    }
    losses = {
        "mse": "anp.mean((anp.reshape(y, target.shape) - target) ** 2)",
        "cross_entropy": "cross_entropy(rows(y), target)",
    }
    checkpoint = "checkpoint_of({function})({arguments})"
    # Gradients of float32 become float64 in where(), ** and max(), but not where they are added up
    # in a tuple. So both runs would round differently, which says nothing about checkpoint().
    features = COMMON - {"float32"} | {"float64"}
    observed = SEEN | {"rng_state", "executions", "saved_bytes", "saved_tensors", "held_bytes"}
    made_line = "made({layer}, {outputs})"
    sees_draws = True
    whole_segments = True
    script_random_state = "anp.random.get_state()[1:3]"

    def __init__(self):
        super().__init__()
        self.run_type = AutogradRun

    def differentiate(self, run, objective, arguments, trained):
        loss, outputs, gradients_of = recorded(objective, arguments, trained)
        run.note_tape(gradients_of, arguments)
        return loss, outputs, gradients_of(vspace(loss).ones())

    def run(self, request, record):
        try:
            super().run(request, record)
        finally:
            for table, own in _TABLES:
                while len(table) > own:
                    table.popitem()

    def array(self, a):
        return a

    def numpy(self, a):
        return np.asarray(getval(a))

    def seed(self, seed):
        return f"anp.random.seed({seed})"

    def random_state(self):
        _, words, position, *_ = np.random.get_state()
        return words.tobytes() + bytes([position % 256, position // 256])


def subject(arguments: list[str]) -> Framework:
    parser = argparse.ArgumentParser(prog="python -m rematch autograd")
    parser.add_argument(
        "--closure", action="store_true", help="segments find their parameters in the functions around them"
    )
    words = parser.parse_args(arguments)
    made = Autograd()
    made.nested_functions = words.closure
    if words.closure:
        # A segment runs once more for each one before it. Where they are nested, this multiplies.
        made.features -= {"nested_3", "nested_4", "more_than_a_few"}
    return made
