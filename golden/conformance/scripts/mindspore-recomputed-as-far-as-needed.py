# executions: Every layer runs as often as the forecast says: once for the forward and once for each recomputation that reaches it. It computes each time, unless a policy kept its results.
# at: step 0, microbatch 0, layer 2 (flatten), checkpointed run
# expected: 2
# got: 1
# mindspore 2.10.0; run: python this_file.py
import sys
from collections import Counter

import os
import re
import mindspore as ms
from mindspore import nn, ops
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
    """Those that the function calls, and the functions that it hands on."""
    names = [n for n in function.__code__.co_names if re.fullmatch(r"m\d+|segment_\w+", n)]
    found = [function.__globals__[n] for n in names]
    return [m for f in found for m in ([f] if isinstance(f, nn.Cell) else modules_of(f))]


def recompute(function, *values, **options):
    """Parameters of modules are no arguments, but those of the cell."""
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
    of_inputs = dict(zip(inputs, by_input, strict=False)) if inputs else {}
    left = iter(by_weight if weights else ())
    gradients = [
        of_inputs[i] if i in inputs else [next(left) for _ in arguments[i]] for i in trained
    ]
    return loss, outputs, gradients


x = ms.Tensor(np.random.default_rng(85).standard_normal((1, 4, 4, 7)).astype(np.float32))
target = ms.Tensor(np.array([[0.6462501287460327, 0.143646240234375, 0.601958155632019, -0.536066472530365, -0.38926488161087036, 0.3148409426212311, -0.5333375334739685, 0.247572660446167, 0.46966493129730225, -0.32588738203048706, -0.08410882949829102]], np.float32))
weight0 = ms.Tensor(np.array([[[[-0.1]], [[0.6]], [[0.1]], [[-0.5]]], [[[0.4]], [[1.3]], [[0.9]], [[-0.7]]], [[[-1.3]], [[-0.6]], [[0.0]], [[-2.3]]], [[[-0.2]], [[-1.2]], [[-0.7]], [[-0.5]]]], np.float32))
weight4 = ms.Tensor(np.random.default_rng(63).standard_normal((11, 112)).astype(np.float32))
bias4 = ms.Tensor(np.array([-0.3, 0.4, 1.0, -0.1, 1.4, -0.7, 0.4, 0.9, 0.1, -0.7, -0.9], np.float32))


runs = Counter()


def enter(layer):
    runs[layer] += 1


def plain(x, weight0, weight4, bias4):
    enter(0)
    v0 = ops.conv2d(x, weight0, None, 1, 'pad', 0)
    enter(1)
    v1 = ops.gelu(v0, approximate='none')
    enter(2)
    v2 = v1.reshape(v1.shape[0], -1)
    enter(3)
    v3 = v2 + v2
    enter(4)
    v4 = ops.matmul(v3, weight4.T) + bias4
    return (v4,)


def checkpointed_segment_0_1(x, weight0):
    enter(0)
    v0 = ops.conv2d(x, weight0, None, 1, 'pad', 0)
    return v0


def checkpointed_segment_1_3(v0):
    enter(1)
    v1 = ops.gelu(v0, approximate='none')
    enter(2)
    v2 = v1.reshape(v1.shape[0], -1)
    return v2


def checkpointed_segment_4_5(v3, weight4, bias4):
    enter(4)
    v4 = ops.matmul(v3, weight4.T) + bias4
    return v4


def checkpointed(x, weight0, weight4, bias4):
    v0 = recompute(checkpointed_segment_0_1, x, weight0, use_reentrant=False, early_stop=False)
    v2 = recompute(checkpointed_segment_1_3, v0, use_reentrant=False)
    enter(3)
    v3 = v2 + v2
    v4 = recompute(checkpointed_segment_4_5, v3, weight4, bias4, use_reentrant=True)
    return (v4,)


def run(model):
    runs.clear()
    ms.set_seed(0), ms.manual_seed(0)

    def objective(x, weight0, weight4, bias4):
        outputs = model(x, weight0, weight4, bias4)
        y = outputs[0]
        return ((y.reshape(target.shape) - target) ** 2).mean(), outputs

    loss, outputs, gradients = differentiate(objective, [x, weight0, weight4, bias4], [0, 1, 2, 3])
    results = {"loss": loss}
    results |= {f"output {i}": y for i, y in enumerate(outputs)}
    results["gradient of x"] = gradients[0]
    results["gradient of weight0"] = gradients[1]
    results["gradient of weight4"] = gradients[2]
    results["gradient of bias4"] = gradients[3]
    results["random state"] = ms.get_rng_state()
    results |= {f"runs of layer {i}": n for i, n in runs.items()}
    return {name: numbers(value) for name, value in results.items()}


def numbers(value):
    if isinstance(value, (list, tuple)):
        return np.concatenate([np.ravel(part) for part in value] or [[]])
    return np.array(value)


plain_results, results = run(plain), run(checkpointed)
different = []
for name, expected in plain_results.items():
    got = results[name]
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    if not np.array_equal(expected, got):
        different.append(name)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)
