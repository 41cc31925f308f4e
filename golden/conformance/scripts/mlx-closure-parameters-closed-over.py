# parameter-gradients: Every parameter gradient has the same bits as in the plain run.
# at: step 0, gradient of parameter 0 (layer 0 linear weight), element 0 (first of 1 that differ, of 1)
# expected: -2.3473804 (0xc0163b7b)
# got: 0 (0x00000000)
# mlx 0.32.4; run: python this_file.py
import sys

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_unflatten
import numpy as np


def differentiate(objective, arguments, trained):
    if not trained:
        loss, outputs = objective(*arguments)
        return loss, outputs, []
    (loss, outputs), gradients = mx.value_and_grad(objective, argnums=trained)(*arguments)
    # A single number gives a gradient that is not in a list.
    gradients = [gradients] if len(trained) == 1 else gradients
    mx.eval(loss, outputs, gradients)
    return loss, outputs, gradients


def numbers(value):
    if isinstance(value, (list, tuple)):
        value = np.concatenate([np.ravel(part) for part in value] or [[]])
    return np.array(value).tolist()


x = mx.array(np.array([[0.1]], np.float32))
target = mx.array(np.array([[-0.3417770266532898]], np.float32))
weight0 = mx.array(np.array([[-0.1]], np.float32))
bias0 = mx.array(np.array([0.6], np.float32))


def plain(x, weight0, bias0):
    v0 = x @ weight0.T + bias0
    return (v0,)


def checkpointed(x, weight0, bias0):
    def checkpointed_segment_0_1(x):
        v0 = x @ weight0.T + bias0
        return v0
    v0 = mx.checkpoint(checkpointed_segment_0_1)(x)
    return (v0,)


def run(model):
    mx.random.seed(0)

    def objective(x, weight0, bias0):
        outputs = model(x, weight0, bias0)
        y = outputs[0]
        return ((y.reshape(target.shape) - target) ** 2).mean(), outputs

    loss, outputs, gradients = differentiate(objective, [x, weight0, bias0], [1, 2])
    results = {"loss": loss}
    results |= {f"output {i}": y for i, y in enumerate(outputs)}
    results["gradient of weight0"] = gradients[0]
    results["gradient of bias0"] = gradients[1]
    results["random state"] = mx.random.state[0]
    return {name: numbers(value) for name, value in results.items()}


expected, got = run(plain), run(checkpointed)
different = [name for name in got if repr(expected.get(name)) != repr(got.get(name))]
for name in different:
    print(f"{name}\n  expected      {str(expected.get(name))[:999]}")
    print(f"  checkpointed  {str(got.get(name))[:999]}")
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)
