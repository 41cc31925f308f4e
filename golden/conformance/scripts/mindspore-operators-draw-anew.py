# dropout-masks: Every recomputation of a random layer draws what its forward drew, and every forward what the plain run drew.
# at: step 1, microbatch 0, layer 0 (dropout), forward
# expected: 25 elements from offset 0, hash 0x5a59cb8237a92ddf
# got: 25 elements from offset 0, hash 0xdde1dbeff23f0784
# mindspore 2.10.0; run: python this_file.py
import sys

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


x = ms.Tensor(np.random.default_rng(85).standard_normal((1, 1, 5, 5)).astype(np.float32))
target = ms.Tensor(np.array([[-0.18535608053207397, -0.7343517541885376, -0.7424287796020508, -0.0984112024307251, 0.871825098991394, 0.22120416164398193, 0.15470170974731445, 0.5857536792755127, -0.7564579248428345, -0.2243121862411499, 0.8897124528884888, 0.17095816135406494, 0.030151963233947754, -0.7595453858375549, 0.8353407382965088, -0.8155460357666016, -0.008233726024627686, -0.27872657775878906, -0.09689854830503464, 0.6288490295410156, 0.6816457509994507, 0.45881950855255127, -0.4875239133834839, -0.32220661640167236, -0.1452643871307373]], np.float32))


def plain(x):
    v0 = ops.dropout(x, 0.5, True)
    return (v0,)


def checkpointed_segment_0_1(x):
    v0 = ops.dropout(x, 0.5, True)
    return v0


def checkpointed(x):
    v0 = recompute(checkpointed_segment_0_1, x, use_reentrant=True)
    return (v0,)


def run(model):
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
