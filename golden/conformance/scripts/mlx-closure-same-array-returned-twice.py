# parameter-gradients: Every parameter gradient has the same bits as in the plain run.
# at: step 0, gradient of parameter 0 (layer 0 linear weight), element 0
# expected: -1.4798641 within 2.7e-06
# got: 0, in the plain run -1.47986412
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


x = mx.array(np.array([[0.1]], np.float32))
target = mx.array(np.array([[0.7211250066757202]], np.float32))
weight0 = mx.array(np.array([[-0.1]], np.float32))
bias0 = mx.array(np.array([0.6], np.float32))


def plain(x, weight0, bias0):
    v0 = x @ weight0.T + bias0
    v1, v1_1 = (v0, v0)
    return (v1, v1_1,)


def checkpointed(x, weight0, bias0):
    def checkpointed_segment_0_1(x):
        v0 = x @ weight0.T + bias0
        return v0
    v0 = mx.checkpoint(checkpointed_segment_0_1)(x)
    def checkpointed_segment_1_2(v0):
        v1, v1_1 = (v0, v0)
        return v1, v1_1
    v1, v1_1 = mx.checkpoint(checkpointed_segment_1_2)(v0)
    return (v1, v1_1,)


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
