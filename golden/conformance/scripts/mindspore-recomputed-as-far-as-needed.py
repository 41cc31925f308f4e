# executions: Every layer runs as often as the forecast says: once for the forward and once for each recomputation that reaches it. It computes each time, unless a policy kept its results.
# at: step 0, microbatch 0, layer 0 (concat), checkpointed run
# expected: 2
# got: 1
# mindspore 2.10.0; run: python this_file.py
import sys
from collections import Counter

import os
import re

os.environ["OMP_NUM_THREADS"] = "1"
import mindspore as ms
from mindspore import nn, ops

ms.set_context(mode=ms.PYNATIVE_MODE, device_target="CPU", runtime_num_threads=1)
ms.set_deterministic(True)
import numpy as np


class Segment(nn.Cell):
    """A function as a cell, with the modules that it calls."""

    def __init__(self, function, modules):
        super().__init__()
        self.function = function
        self.modules = nn.CellList(modules)

    def construct(self, *values, **keywords):
        return self.function(*values, **keywords)


def modules_of(function):
    """The modules that the function calls, itself or in segments within it."""
    names = [n for n in function.__code__.co_names if re.fullmatch(r"m\d+|(\w+_)?segment_\w+", n)]
    found = [function.__globals__[n] for n in names]
    return [m for f in found for m in ([f] if isinstance(f, nn.Cell) else modules_of(f))]


def recompute(function, *values, **options):
    """Lists are the parameters of modules. They belong to the cell and are not passed on."""
    tensors = [v for v in values if not isinstance(v, list)]

    def run(*given, **keywords):
        left = iter(given)
        merged = [v if isinstance(v, list) else next(left) for v in values]
        return function(*merged, **keywords)

    return ms.recompute(Segment(run, modules_of(function)), *tensors, **options)


def differentiate(objective, arguments, trained):
    inputs = tuple(i for i in trained if not isinstance(arguments[i], list))
    weights = [p for i in trained if isinstance(arguments[i], list) for p in arguments[i]]
    if not trained:
        loss, outputs = objective(*arguments)
        return loss, outputs, []

    def flat(*values):
        loss, outputs = objective(*values)
        return loss, *outputs

    step = ms.value_and_grad(flat, inputs or None, weights or None, has_aux=True)
    (loss, *outputs), found = step(*arguments)
    # Both kinds come as a pair of tuples; one alone as it is, and a tuple of one as its element.
    by_input, by_weight = found if inputs and weights else (found, found)
    by_input = by_input if isinstance(by_input, tuple) else (by_input,)
    of_inputs = dict(zip(inputs, by_input, strict=True)) if inputs else {}
    left = iter(by_weight if weights else ())
    gradients = [
        of_inputs[i] if i in inputs else [next(left) for _ in arguments[i]] for i in trained
    ]
    return loss, outputs, gradients


x = ms.Tensor(np.random.default_rng(85).standard_normal((5, 4, 5, 5)).astype(np.float32))
target = ms.Tensor(np.array([[3.0, 3.0, 3.0, -2.0, -3.0, 3.0, 2.0, 1.0, 1.0, 3.0, 3.0, 2.0, 1.0, -2.0, 2.0, -2.0, 0.0, 3.0, 0.0, 0.0, 3.0, 1.0, -2.0, 1.0, -3.0, 1.0, -2.0, 1.0, 2.0, 3.0, 3.0, 1.0, 3.0, 2.0, -3.0, 2.0, -3.0, 3.0, 3.0, -2.0, -2.0, 0.0, 3.0, -2.0, -2.0, 0.0, -2.0, 1.0, 1.0, 0.0, -3.0, 3.0, -2.0, -2.0, 0.0, 2.0, -2.0, 0.0, 2.0, -3.0, -3.0, 0.0, -3.0, 0.0, 1.0, -3.0, -2.0, 3.0, -3.0, 3.0, 1.0, 1.0, -3.0, 3.0, 1.0, -2.0, -2.0, 3.0, -2.0, -1.0, -3.0, -3.0, 1.0, 2.0, 0.0, -2.0, 2.0, 2.0, -2.0, -2.0, 1.0, 2.0, -2.0, -1.0, 0.0, -1.0, 1.0, 0.0, 3.0, 2.0, 0.0, 3.0, 3.0, -1.0, 3.0, 1.0, -1.0, -1.0, 2.0, 3.0, -2.0, -1.0, 2.0, 3.0, 0.0, -3.0, 3.0, -1.0, 1.0, 3.0, -2.0, -3.0, 0.0, 3.0, -3.0, 0.0, -2.0, -1.0, -2.0, -1.0, -3.0, -3.0, -2.0, 1.0, -3.0, 0.0, -1.0, 0.0, -2.0, -2.0, -1.0, 1.0, -2.0, -1.0, -3.0, 1.0, -1.0, -2.0, -1.0, 2.0, -3.0, 1.0, 3.0, 1.0, -3.0, 1.0, 0.0, -2.0, -1.0, 2.0, -3.0, -1.0, -2.0, 0.0, 0.0, 2.0, 1.0, -2.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, -1.0, -3.0, -2.0, 2.0, 1.0, 2.0, 2.0, 2.0, 1.0, 2.0, 2.0, -1.0, 2.0, 0.0, -2.0, 1.0, 1.0, -2.0, 2.0, 1.0, -2.0, -1.0, 0.0, 0.0, -3.0, 3.0], [-2.0, 2.0, -2.0, 2.0, 0.0, -1.0, -3.0, 2.0, 2.0, -1.0, -3.0, 3.0, -2.0, 0.0, -2.0, 3.0, 1.0, -3.0, 1.0, 2.0, -1.0, -3.0, -3.0, -3.0, 1.0, -2.0, -2.0, 1.0, -3.0, 2.0, -1.0, -1.0, -2.0, 2.0, 0.0, -3.0, -3.0, 1.0, 1.0, -1.0, 2.0, 2.0, 1.0, 0.0, -1.0, -2.0, -3.0, 2.0, 3.0, 1.0, 2.0, 1.0, 2.0, 1.0, 3.0, -1.0, 3.0, 0.0, 2.0, -2.0, -2.0, 0.0, 0.0, 2.0, 3.0, 0.0, 3.0, 3.0, -1.0, 0.0, -1.0, -1.0, 3.0, 3.0, -2.0, -2.0, -1.0, -2.0, 0.0, 0.0, 2.0, 1.0, 2.0, -2.0, -2.0, 0.0, -3.0, -3.0, 2.0, 0.0, 3.0, 0.0, -1.0, 1.0, 1.0, 2.0, 1.0, 2.0, -1.0, -3.0, 2.0, 1.0, 2.0, 0.0, 0.0, 1.0, 0.0, -2.0, -1.0, 1.0, -1.0, 2.0, 1.0, -3.0, 3.0, 1.0, 0.0, -2.0, 1.0, -2.0, -3.0, 1.0, -1.0, -1.0, 3.0, -1.0, -2.0, 3.0, -3.0, 3.0, 2.0, -1.0, 1.0, -2.0, 1.0, -1.0, -3.0, 3.0, 2.0, 1.0, 0.0, -2.0, 3.0, 0.0, 2.0, -3.0, -1.0, 3.0, 0.0, -1.0, -2.0, 0.0, 3.0, -1.0, 1.0, 2.0, 0.0, 1.0, 3.0, 2.0, 0.0, -2.0, -3.0, 0.0, -2.0, -3.0, 1.0, 3.0, -3.0, 2.0, 0.0, 2.0, 3.0, -1.0, 1.0, 2.0, 3.0, 0.0, 0.0, -1.0, 1.0, -2.0, 3.0, -2.0, -3.0, 1.0, -3.0, -3.0, 1.0, 0.0, -2.0, 0.0, 3.0, -1.0, 3.0, -1.0, 2.0, -2.0, 0.0, -3.0], [2.0, 0.0, -2.0, 0.0, 0.0, 1.0, -1.0, -3.0, -1.0, 1.0, -2.0, -1.0, 0.0, 2.0, 0.0, -1.0, 2.0, 1.0, -2.0, -3.0, 2.0, 2.0, 2.0, -2.0, -2.0, 3.0, 2.0, 2.0, 1.0, 1.0, 3.0, 2.0, -3.0, -1.0, -3.0, 0.0, -2.0, -1.0, -3.0, -2.0, -1.0, 3.0, -3.0, 2.0, 3.0, 0.0, -3.0, -1.0, 3.0, 0.0, -2.0, -2.0, -2.0, -2.0, 3.0, -3.0, -1.0, -3.0, -3.0, 3.0, -2.0, 2.0, 0.0, -2.0, -2.0, 3.0, 3.0, -1.0, -3.0, 0.0, 1.0, 2.0, 1.0, 3.0, -2.0, -3.0, -3.0, 2.0, 1.0, 1.0, 0.0, 3.0, 3.0, 2.0, 0.0, -3.0, 3.0, 1.0, 0.0, -2.0, 1.0, -3.0, -1.0, 2.0, -3.0, -2.0, 3.0, -3.0, 2.0, 0.0, 2.0, 2.0, 1.0, -1.0, 1.0, 1.0, -2.0, 1.0, 3.0, -2.0, 2.0, -2.0, 3.0, -2.0, -1.0, 3.0, 3.0, -1.0, -3.0, 0.0, -2.0, 1.0, -3.0, -3.0, 0.0, -2.0, 2.0, -3.0, -2.0, 0.0, -3.0, 1.0, 0.0, 0.0, -2.0, 2.0, 2.0, -3.0, -2.0, -2.0, -1.0, 0.0, 0.0, 2.0, -1.0, -1.0, -2.0, 3.0, 3.0, -3.0, 1.0, 1.0, 3.0, -1.0, 1.0, 1.0, 1.0, -3.0, -2.0, 1.0, 3.0, 1.0, 3.0, 2.0, 2.0, -2.0, -1.0, -3.0, 2.0, -3.0, 1.0, -2.0, 3.0, 3.0, 0.0, 3.0, 1.0, 2.0, -1.0, -3.0, -3.0, -2.0, 2.0, -3.0, -2.0, 2.0, 2.0, -2.0, 3.0, -3.0, 2.0, -3.0, 2.0, 0.0, -3.0, 0.0, 2.0, -2.0, -1.0, 1.0], [0.0, -3.0, -2.0, -3.0, 3.0, 1.0, -1.0, -3.0, -1.0, 2.0, -3.0, -1.0, 2.0, 3.0, 3.0, 1.0, 0.0, -1.0, -1.0, -2.0, 0.0, 2.0, -3.0, 2.0, 1.0, -1.0, -2.0, 1.0, 2.0, -1.0, 2.0, 0.0, -1.0, 3.0, -1.0, 3.0, 2.0, -3.0, 2.0, 1.0, -1.0, 0.0, 0.0, 0.0, 2.0, 2.0, -2.0, -3.0, 0.0, 1.0, -1.0, 3.0, -2.0, 1.0, -3.0, 3.0, -1.0, 3.0, -1.0, -1.0, -2.0, -2.0, 2.0, 3.0, 2.0, 1.0, -2.0, 0.0, 1.0, 2.0, -2.0, 0.0, 0.0, 2.0, 0.0, 3.0, -1.0, 0.0, -1.0, 0.0, 0.0, 0.0, 1.0, -1.0, -1.0, 1.0, -1.0, -2.0, -3.0, -3.0, 1.0, -3.0, 3.0, 3.0, 0.0, 1.0, -1.0, 0.0, 1.0, -3.0, 3.0, -3.0, -3.0, 3.0, 2.0, -1.0, -1.0, -3.0, 0.0, 0.0, -1.0, -2.0, -1.0, 2.0, 2.0, 3.0, 0.0, -2.0, -1.0, 3.0, 0.0, -2.0, -3.0, -2.0, 1.0, -1.0, -2.0, -2.0, -1.0, 2.0, -2.0, -2.0, -3.0, 0.0, -1.0, 0.0, 3.0, 1.0, -1.0, -1.0, 1.0, -3.0, -1.0, 3.0, -3.0, -3.0, 3.0, -3.0, 3.0, 0.0, -3.0, -1.0, 0.0, -2.0, -2.0, 3.0, -2.0, -3.0, 3.0, 2.0, 2.0, 1.0, 2.0, -3.0, -2.0, 0.0, 1.0, 3.0, -2.0, -1.0, -1.0, -2.0, 3.0, 3.0, 0.0, 3.0, 0.0, -1.0, 0.0, -2.0, 3.0, 3.0, 2.0, 2.0, 1.0, -2.0, -2.0, -3.0, 3.0, 1.0, 0.0, 1.0, -2.0, 3.0, -3.0, 3.0, -2.0, -1.0, 3.0, 3.0], [3.0, 1.0, 0.0, 1.0, -2.0, 0.0, 3.0, -1.0, -2.0, 2.0, -2.0, 3.0, 3.0, 1.0, 3.0, -3.0, 0.0, -3.0, -2.0, 1.0, 3.0, 0.0, 3.0, -1.0, -1.0, -1.0, 1.0, -1.0, 3.0, -3.0, -2.0, -1.0, 2.0, -3.0, 2.0, 2.0, 3.0, 3.0, -3.0, 0.0, 1.0, 1.0, 3.0, -3.0, 2.0, -1.0, -1.0, 3.0, -2.0, 2.0, -2.0, 3.0, -2.0, -1.0, -1.0, -3.0, 0.0, 1.0, -2.0, 0.0, 2.0, 2.0, 3.0, 1.0, -1.0, 3.0, 3.0, -1.0, 3.0, -3.0, 1.0, 0.0, -3.0, 2.0, 1.0, -1.0, 1.0, 3.0, 3.0, -3.0, 1.0, 2.0, 1.0, 0.0, 2.0, 2.0, -3.0, -3.0, 3.0, -3.0, -3.0, 0.0, -2.0, 1.0, -2.0, 3.0, -1.0, 2.0, 0.0, 3.0, 3.0, 3.0, -3.0, -3.0, -2.0, 3.0, -1.0, 3.0, 3.0, 0.0, -1.0, 2.0, -3.0, 3.0, -3.0, 2.0, 0.0, -3.0, 1.0, 2.0, -3.0, 3.0, -2.0, -1.0, 0.0, -3.0, 0.0, 3.0, -1.0, 0.0, -2.0, 0.0, 1.0, 2.0, -2.0, 0.0, -1.0, 1.0, 0.0, 1.0, -2.0, -3.0, 0.0, 1.0, -2.0, -2.0, 3.0, 0.0, 3.0, -3.0, 2.0, 1.0, 1.0, -3.0, 1.0, 0.0, 1.0, -1.0, 2.0, -1.0, -1.0, 1.0, 1.0, -3.0, 1.0, -3.0, -3.0, -2.0, 2.0, 3.0, -3.0, -2.0, 0.0, -3.0, -1.0, 3.0, 3.0, -1.0, -3.0, -1.0, -1.0, -1.0, -3.0, -1.0, -2.0, -3.0, 3.0, 0.0, -1.0, -2.0, -1.0, -1.0, -3.0, 2.0, -2.0, 1.0, -3.0, 0.0, 1.0, -2.0]], np.float32))


runs = Counter()


def enter(layer):
    runs[layer] += 1


def plain(x):
    enter(0)
    v0 = ops.cat([x, x], 1)
    return (v0,)


def checkpointed_segment_0_1(x):
    enter(0)
    v0 = ops.cat([x, x], 1)
    return v0


def checkpointed(x):
    v0 = recompute(checkpointed_segment_0_1, x, use_reentrant=False)
    return (v0,)


def run(model):
    runs.clear()
    ms.set_seed(0), ms.manual_seed(0)

    def objective(x):
        outputs = model(x)
        y = outputs[0]
        return ((y.reshape(target.shape) - target) ** 2).mean(), outputs

    loss, outputs, gradients = differentiate(objective, [x], [0])
    results = {"loss": loss}
    results |= {f"output {i}": y for i, y in enumerate(outputs)}
    results["gradient of x"] = gradients[0]
    results["random state"] = ms.get_rng_state()
    results |= {f"runs of layer {i}": n for i, n in runs.items()}
    return {name: numbers(value) for name, value in results.items()}


def numbers(value):
    if isinstance(value, (list, tuple)):
        return np.concatenate([np.ravel(part) for part in value] or [[]])
    return np.array(value)


def outcome(model):
    try:
        return run(model)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


plain_results, results = outcome(plain), outcome(checkpointed)
different = []
for name in ["error"] if "error" in plain_results | results else plain_results:
    expected, got = plain_results.get(name), results.get(name)
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    if not np.array_equal(expected, got):
        different.append(name)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)
