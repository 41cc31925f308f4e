# buffers-after-step: Running statistics are updated once per forward: after every step they have the same bits as in the plain run.
# at: step 0, buffer 0 (layer 1 all), element 0 (first of 2 that differ, of 2)
# expected: 0.007801366038620472 (0x3f7ff45340000000)
# got: 0.014822594821453094 (0x3f8e5b4f00000000)
# mlx 0.32.4; run: python this_file.py
import sys

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_unflatten
import numpy as np


def bound(module, parameters):
    """The module with other values for what it trains."""
    names = [name for name, _ in tree_flatten(module.trainable_parameters())]
    module.update(tree_unflatten(list(zip(names, parameters, strict=True))))
    return module


def differentiate(objective, arguments, trained):
    if not trained:
        loss, outputs = objective(*arguments)
        return loss, outputs, []
    (loss, outputs), gradients = mx.value_and_grad(objective, argnums=trained)(*arguments)
    # A single number gives a gradient that is not in a list.
    gradients = [gradients] if len(trained) == 1 else gradients
    mx.eval(loss, outputs, gradients)
    return loss, outputs, gradients


def parameters_of(m):
    return [value for _, value in tree_flatten(m.trainable_parameters())]


def state_of(m):
    trained = [name for name, _ in tree_flatten(m.trainable_parameters())]
    return [value for name, value in tree_flatten(m.parameters()) if name not in trained]


def set_mode(m, train):
    m.train(train)


x = mx.array(np.array([[0.1], [-0.1]], np.float32))
target = mx.array(np.array([[0.96977698802948], [-0.2144157886505127]], np.float32))
weight0 = mx.array(np.array([[0.6]], np.float32))
bias0 = mx.array(np.array([0.1], np.float32))


def plain(x, weight0, bias0, w1):
    v0 = x @ weight0.T + bias0
    v1 = bound(m1, w1)(v0)
    return (v1,)


def checkpointed(x, weight0, bias0, w1):
    v0 = x @ weight0.T + bias0
    def checkpointed_segment_1_2(v0):
        v1 = bound(m1, w1)(v0)
        return v1
    v1 = mx.checkpoint(checkpointed_segment_1_2)(v0)
    return (v1,)


def run(model):
    global m1
    mx.random.seed(1)
    m1 = nn.BatchNorm(1)
    set_mode(m1, True)
    w1 = parameters_of(m1)
    mx.random.seed(0)

    def objective(x, weight0, bias0, w1):
        outputs = model(x, weight0, bias0, w1)
        y = outputs[0]
        return ((y.reshape(target.shape) - target) ** 2).mean(), outputs

    loss, outputs, gradients = differentiate(objective, [x, weight0, bias0, w1], [1, 2, 3])
    results = {"loss": loss}
    results |= {f"output {i}": y for i, y in enumerate(outputs)}
    results["gradient of weight0"] = gradients[0]
    results["gradient of bias0"] = gradients[1]
    results["gradient of w1"] = gradients[2]
    results["state of m1"] = state_of(m1)
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
